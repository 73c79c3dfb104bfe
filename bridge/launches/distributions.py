"""Student's t and the beta distribution, by the regularised incomplete beta function.

Continued fraction after Numerical Recipes, section 6.4 (Lentz's method); quantiles by bisection, to 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

_TINY = 1e-300
_STEPS = 400


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def beta_quantile(p: float, a: float, b: float) -> float:
    """Return x with I_x(a, b) = p."""
    return _bisect(lambda x: beta_cdf(x, a, b) - p, 0.0, 1.0)


def t_cdf(t: float, df: float) -> float:
    """Return the distribution function of Student's t."""
    tail = 0.5 * beta_cdf(df / (df + t * t), df / 2.0, 0.5)
    return 1.0 - tail if t > 0 else tail


@cache
def t_quantile(p: float, df: float) -> float:
    """Return the p-quantile of Student's t."""
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    high = 1.0
    while t_cdf(high, df) < p and high < 1e12:
        high *= 2.0
    return _bisect(lambda t: t_cdf(t, df) - p, 0.0, high)


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + term / c
            c = c if abs(c) > _TINY else _TINY
            value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value


def _bisect(function: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(200):
        middle = (low + high) / 2.0
        if function(middle) < 0.0:
            low = middle
        else:
            high = middle
        if high - low <= 1e-13 * max(1.0, abs(high)):
            break
    return (low + high) / 2.0
