"""The ocean of `ocean_mixing.py`: real coastlines; everything below and inside them is synthetic.

Arrays are (longitude, latitude, level), the level last and counted downwards, float64.
"""

from typing import NamedTuple

import numpy as np
from global_land_mask import globe
from scipy.ndimage import distance_transform_edt

FULL = (360, 160, 60)  # one degree, 80 S to 80 N, 60 levels
SMALL = (36, 16, 20)
DEEPEST = 5500.0  # m
K_MIN, K_MAX = 1e-5, 1.0  # m2/s: the quiet interior, the convecting mixed layer


class Grid(NamedTuple):
    lon: np.ndarray  # (nx,) degrees east
    lat: np.ndarray  # (ny,) degrees north
    top: np.ndarray  # (nz + 1,) m: depths of the interfaces between layers, surface and deepest bottom included
    ocean: np.ndarray  # (nx, ny, nz) bool: False on land and below the bottom
    depth: np.ndarray  # (nx, ny) m: depth of the bottom, 0 on land

    @property
    def thickness(self) -> np.ndarray:
        return np.diff(self.top)

    @property
    def middle(self) -> np.ndarray:
        return (self.top[1:] + self.top[:-1]) / 2


def make_grid(shape: tuple[int, int, int] = FULL) -> Grid:
    nx, ny, nz = shape
    lon = -180 + 360 * (np.arange(nx) + 0.5) / nx
    lat = -80 + 160 * (np.arange(ny) + 0.5) / ny
    s = np.arange(nz + 1) / nz
    top = DEEPEST * (s + 8 * s**3) / 9  # 60 levels: 10 m thick at the surface, 250 m at the bottom
    wet = globe.is_ocean(*np.meshgrid(lat, lon))  # the real coastline, at the middle of each cell
    depth = synthetic_depth(lon, lat, wet)
    levels = np.searchsorted((top[1:] + top[:-1]) / 2, depth)  # a cell is ocean if its middle is above the bottom
    ocean = wet[..., None] & (np.arange(nz) < np.maximum(levels, 2)[..., None])
    return Grid(lon, lat, top, ocean, (top[1:] * ocean).max(-1))


def synthetic_depth(lon: np.ndarray, lat: np.ndarray, wet: np.ndarray) -> np.ndarray:
    """No real bathymetry: a shelf that falls off with the distance from the coast, and a field of ridges."""
    nx = len(lon)
    pixel = (360 / nx, 160 / len(lat))
    around = np.concatenate([wet] * 3)  # the date line is no coast
    degrees = distance_transform_edt(around, sampling=pixel)[nx : 2 * nx]
    x, y = np.meshgrid(np.radians(lon), np.radians(lat), indexing="ij")
    ridges = np.sin(3 * x + 2 * np.sin(2 * y)) * np.cos(5 * y + np.sin(2 * x)) + 0.3 * np.sin(17 * x + 11 * y)
    slope = np.maximum(degrees - 0.7 * pixel[0], 0)  # the cell at the coast is shelf, 60 m
    return 60 + (4300 + 1000 * ridges) * (1 - np.exp(-((slope / 4) ** 1.5)))


def first_profiles(grid: Grid) -> np.ndarray:
    """Synthetic temperature (C) and salinity (g/kg), stacked: warm and salty subtropics over a uniform abyss."""
    x, y = np.radians(grid.lon)[:, None, None], np.radians(grid.lat)[None, :, None]
    lat, z = np.abs(grid.lat)[None, :, None], grid.middle
    eddies = 1.5 * np.sin(5 * x + 3 * np.sin(4 * y)) * np.cos(9 * y + np.sin(3 * x)) * np.cos(y)
    surface_t = 30.5 * np.cos(y) ** 1.7 - 2 + eddies
    surface_s = 1.6 * np.exp(-(((lat - 25) / 12) ** 2)) - 0.6 * np.exp(-((lat / 7) ** 2))
    surface_s = surface_s - 1.2 * np.exp((lat - 80) / 12)
    temperature = 1.5 + (surface_t - 1.5) * np.exp(-z / (150 + 500 * np.cos(y) * np.exp(-(((lat - 32) / 14) ** 2))))
    salinity = 34.7 + (surface_s + 0.1 * eddies) * np.exp(-z / 350)
    return np.stack([temperature, salinity]) * grid.ocean


def mixing_coefficient(grid: Grid, month: float) -> np.ndarray:
    """Synthetic K at the interface below each level, m2/s: 1 in the mixed layer, 1e-5 below, tides over the bottom."""
    lat, z = grid.lat[:, None], grid.top[1:]
    winter = (1 + np.sign(lat) * np.cos(2 * np.pi * (month - 1.5) / 12)) / 2  # 1 in mid-February, north
    convection = 1500 * winter**6 * np.exp(-(((np.abs(lat) - 61) / 7) ** 2))
    mixed_layer = 25 + 220 * winter**2 * np.minimum(np.abs(lat) / 40, 1) + convection  # m
    surface = K_MIN * (K_MAX / K_MIN) ** (1 / (1 + (z / mixed_layer) ** 8))
    tides = 2e-4 * np.exp(-np.arange(DEEPEST + 1) / 300)  # a table by height above the bottom, one line a metre
    height = np.maximum(grid.depth[..., None] - z, 0).astype(np.int32)
    return np.minimum(surface + tides[height], K_MAX)
