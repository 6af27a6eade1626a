"""Families by name, and a team's own by module and class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.registry import FAMILIES, family

OWN = '''
from mlcost_pipeline.models.als import Als

class Ours(Als):
    """A team's own family."""

    name = "ours"
'''


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_registered_family_loads_under_its_name(name: str) -> None:
    found = family(name)
    assert found.name == name
    assert isinstance(found.stepped, bool)


def test_a_team_can_bring_its_own_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert family("our_models:Ours").name == "ours"
    assert family("our_models:Ours")({"factors": 4}, 0).epochs == 15


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("als2", "there are: als, forest, mlp, sasrec"),
        ("no_such_module_here:Class", "cannot be imported"),
        ("mlcost_pipeline.models.als:Nothing", "no class 'Nothing'"),
        ("mlcost_pipeline.models.als:Rows", "lacks name, stepped"),
    ],
)
def test_a_wrong_name_is_answered_with_what_to_do(name: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        family(name)


def test_the_registry_and_features_load_no_heavy_library() -> None:
    program = (
        "import sys, mlcost_pipeline.models.registry, mlcost_pipeline.models.features, mlcost_pipeline.models.base\n"
        "import mlcost_pipeline.models.scoring_features, mlcost_pipeline.models.scoring_request\n"
        "print([name for name in ('torch', 'sklearn', 'skops', 'pandas', 'evidently') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_settings_know_every_family_that_comes_along() -> None:
    from mlcost_pipeline.settings_faults import FAMILY_TASKS

    assert set(FAMILY_TASKS) == set(FAMILIES)
