"""Least squares, in plain Python."""


def fitted(rows: int) -> tuple[float, float]:
    """Slope and intercept of `rows` points on the line y = 2 x + 1."""
    xs = [float(x) for x in range(rows)]
    ys = [2 * x + 1 for x in xs]
    mean_x, mean_y = sum(xs) / rows, sum(ys) / rows
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)
    return slope, mean_y - slope * mean_x
