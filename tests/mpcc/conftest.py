"""Small programs for the tests of this folder."""

import pytest

from tests.mpcc.programs import small_program


@pytest.fixture
def program():
    """The function that builds a small MPCC."""
    return small_program
