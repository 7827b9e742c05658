"""Kalman filters, smoothers and log-likelihoods, and their gradients."""
