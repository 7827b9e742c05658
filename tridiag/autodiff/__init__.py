"""The one derivative rule of a solve, told once to each library that differentiates.

With x = A^-1 d and cotangent g, w = A^-T g:   d: w,   b_i: -w_i x_i,   a_i: -w_i x_{i-1},   c_i: -w_i x_{i+1}
"""
