"""apps/odimo/recipe.py: how the shares cool."""

from tilewright.apps.odimo.task import Recipe


def test_the_temperature_falls_to_its_floor():
    recipe = Recipe()
    found = [recipe.temperature(epoch) for epoch in range(60)]
    assert found[0] == 1 and found == sorted(found, reverse=True) and found[-1] == recipe.coldest
