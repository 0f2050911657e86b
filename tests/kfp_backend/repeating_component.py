"""A component that needs nothing but kfp. Its annotations are read by kfp, so they are no strings."""

from typing import NamedTuple

from kfp import dsl


@dsl.component(base_image="example.com/none", install_kfp_package=False)
def repeat(word: str, shown: dsl.Output[dsl.Markdown], times: int = 2, fails: bool = False) -> NamedTuple(
    "Outputs", [("words", list)]
):
    """Return the word so many times."""
    import os

    print(word)
    with open(os.environ["TRAINWRIGHT_TERMINATION_LOG"], "w") as file:
        file.write(f"said {word}")
    with open(shown.path, "w") as file:
        file.write(word)
    if fails:
        raise SystemExit(5)
    return ([word] * times,)
