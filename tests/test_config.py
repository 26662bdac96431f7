import json

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fedeas import InputError, SpecError
from fedeas.cli.options import read_config
from fedeas.config import RunConfig, load_config
from fedeas.core.errors import FedEASError


def test_the_defaults_are_the_papers_training():
    config = RunConfig()
    assert (config.train.lr, config.train.batch_size, config.train.epochs) == (1e-3, 64, 10)
    assert (config.train.momentum, config.train.weight_decay, config.train.augment) == (0, 0, "none")
    assert config.rounds.total == 200


def test_a_file_is_read_and_overridden(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('label = "mine"\npolicy = "fedeas(beta=3)"\n[train]\nlr = 0.1\n[partition]\nclients = 7\n')
    config = load_config(path, ["train.lr=0.05", "rounds.total=3", "algorithm=fedprox(mu=0.1)", "partition.cap=true"])
    assert config.label == "mine"
    assert config.train.lr == 0.05
    assert config.rounds.total == 3
    assert config.algorithm == "fedprox(mu=0.1)"
    assert config.partition.clients == 7
    assert config.partition.cap is True


@pytest.mark.parametrize(
    ("written", "override", "named"),
    [
        ("", "rounds.totl=3", "the command line"),
        ("rate = 1", "rounds.totl=3", "run.toml"),
        ("rate = 1", None, "run.toml"),
    ],
)
def test_an_error_names_the_file_or_the_command_line(tmp_path, written, override, named):
    (tmp_path / "run.toml").write_text(written)
    with pytest.raises(InputError, match=f"{named}: unknown key"):
        load_config(tmp_path / "run.toml", [override] if override else [])


def test_an_override_may_complete_a_file(tmp_path):
    (tmp_path / "run.toml").write_text('policy = "pool(distinct=9)"')
    assert load_config(tmp_path / "run.toml", ["generator=shared(of=gaussian)"]).policy == "pool(distinct=9)"


def test_a_pool_needs_a_shared_generator_also_if_it_is_ones_own():
    pool, own = "policy=pool(distinct=9)", "python:mine:images"
    with pytest.raises(InputError, match=rf"set generator=shared\(of={own}\)"):
        load_config(None, [pool, f"generator={own}"])
    assert load_config(None, [pool, f"generator=shared(of={own})"]).generator == f"shared(of={own})"


def test_a_config_survives_json():
    config = load_config(None, ["train.lr=0.05", "engine.threads=2"])
    assert RunConfig.model_validate_json(json.dumps(config.model_dump(mode="json"))) == config


@pytest.mark.parametrize("text", ["42", "true", "1e3", "inf", "007"])
def test_text_needs_no_quotes(text):
    assert load_config(None, [f"label={text}"]).label == text
    assert load_config(None, [f'label="{text}"']).label == text
    with pytest.raises(InputError):
        load_config(None, [f'train.lr="{text}"'])


def test_only_what_changes_the_result_changes_the_fingerprint():
    base = RunConfig()
    engine = "engine.device=cpu", "engine.threads=1", "engine.processes=2", "engine.name=local"
    for same in ("label=other", "data.root=/elsewhere", *engine):
        assert load_config(None, [same]).fingerprint == base.fingerprint
    different = ("seed=1", "train.lr=0.1", "policy=full-balance", "partition.clients=21", "rounds.total=9")
    assert len({load_config(None, [each]).fingerprint for each in different} | {base.fingerprint}) == 6


def test_participants_are_at_least_one():
    assert load_config(None, ["partition.clients=20", "rounds.participation=0.5"]).participants == 10
    assert load_config(None, ["partition.clients=3", "rounds.participation=0.1"]).participants == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epoch=1", "unknown key 'train.epoch'; did you mean 'train.epochs'?"),
        ("lr=1", "unknown key 'lr'; did you mean 'train.lr'?"),
        ("polcy=uniform", "unknown key 'polcy'; did you mean 'policy'?"),
        ("train.lr=fast", "train.lr: Input should be a valid number, not 'fast'"),
        ("train.lr=0", "train.lr: Input should be greater than 0, not 0"),
        ("train.epochs=2.5", "train.epochs: Input should be a valid integer"),
        ("train.epochs=true", "train.epochs: Input should be a valid integer, not True"),
        ("rounds.participation=1.5", "rounds.participation: Input should be less than or equal to 1"),
        ("partition.scheme=magic", "partition.scheme: Input should be 'auto', 'dirichlet', 'iid'"),
        ("data.protocol=paper", "data.protocol 'paper' and partition.scheme 'paper' go together"),
        ("policy=pool(distinct=9)", "set generator=shared(of=gaussian("),
        ("train=5", "train: Input should be a valid dictionary or instance of TrainConfig, not 5"),
        ("label=../up", "label: '../up' cannot name a folder; use at most 100 of the letters"),
        ("label=Modell 1", "label: 'Modell 1' cannot name a folder"),
        ("label=-mine", "with a letter or digit first"),
        (f"label={'a' * 101}", "use at most 100"),
        ("seed", "override 'seed' is not of the form key=value"),
        ("seed.deep=1", "seed: Input should be a valid integer"),
    ],
)
def test_bad_keys_and_values_are_refused_in_one_line(override, message):
    with pytest.raises(InputError) as caught:
        load_config(None, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_policies_are_noticed_at_once():
    with pytest.raises((InputError, SpecError), match="unknown policy 'magic'"):
        load_config(None, ["policy=magic"])


@pytest.mark.parametrize("policy", ["kl", "kl(smoothing=2)", "pool(fill=max)"])
def test_a_run_needs_the_budget_of_its_policy(policy):
    with pytest.raises((InputError, SpecError), match=r"needs (budget|distinct)"):
        load_config(None, [f"policy={policy}"])


def test_bad_files_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("label = \n")
    with pytest.raises(InputError, match=r"bad.toml: cannot be read as TOML"):
        load_config(tmp_path / "bad.toml")


@given(key=st.sampled_from(["train.lr", "train.weight_decay"]), value=st.floats(0, exclude_min=True, allow_nan=False))
@example(key="train.lr", value=1e39)
@example(key="train.weight_decay", value=1e300)
def test_a_number_for_torch_fits_the_32_bits_that_torch_computes_with(key, value):
    spec = f"fedprox(mu={value!r})" if value < 1e308 else "fedprox(mu=1e308)"
    if value <= torch.finfo(torch.float32).max:
        config = load_config(None, [f"{key}={value!r}", f"algorithm={spec}"])
        torch.ones(1).add_(torch.ones(1), alpha=config.flat[key])
        return
    for override in (f"{key}={value!r}", f"algorithm={spec}"):
        with pytest.raises((InputError, SpecError)):
            load_config(None, [override])


@given(key=st.sampled_from(sorted(RunConfig().flat)), value=st.text("ab/:=. ", max_size=12))
@example(key="data.dataset", value="folder:/a//b/./c/")
def test_an_argument_whose_left_side_is_a_key_is_an_override(key, value):
    try:
        expected = load_config(None, [f"{key}={value}"])
    except FedEASError as error:
        with pytest.raises(type(error)) as caught:
            read_config(f"{key}={value}", [], None)
        assert str(caught.value) == str(error)
    else:
        assert read_config(f"{key}={value}", [], None) == expected
