"""Models against the published numbers, their names, their seeds and the files they are loaded from."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from fedeas import InputError
from fedeas.models.build import build_model, parameter_names, suited_to

VARIANTS = [
    ("resnet18", (3, 32, 32), {}),
    ("resnet18", (3, 64, 48), {"stem": "imagenet"}),
    ("resnet18", (1, 16, 16), {"norm": "group"}),
    ("small-cnn", (1, 8, 8), {}),
    ("small-cnn", (3, 32, 32), {"norm": "batch"}),
    ("small-cnn", (3, 28, 21), {"norm": "group"}),
    ("small-cnn", (1, 1, 3), {}),
]


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def same(first, second):
    pairs = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    return all(name == other and torch.equal(tensor, twin) for (name, tensor), (other, twin) in pairs)


@pytest.mark.parametrize(("name", "shape", "settings"), VARIANTS)
def test_forward_is_the_head_of_the_features(name, shape, settings):
    model = build_model(name, shape, 7, seed=0, **settings).eval()
    images = torch.randn(2, *shape)
    features = model.features(images)
    assert isinstance(model.head, nn.Linear)
    assert features.shape == (2, model.head.in_features)
    assert torch.equal(model(images), model.head(features))
    assert model(images).shape == (2, 7)


@pytest.mark.parametrize(("name", "shape", "settings"), VARIANTS)
def test_all_parameters_are_trainable_and_only_batch_norm_has_buffers(name, shape, settings):
    model = build_model(name, shape, 7, seed=0, **settings)
    assert parameter_names(model) == tuple(name for name, _ in model.named_parameters())
    buffers = set(model.state_dict()) - set(parameter_names(model))
    assert bool(buffers) == any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((1, 8, 8), "small-cnn"),
        ((3, 15, 15), "small-cnn"),
        ((1, 16, 16), "resnet18"),
        ((3, 32, 32), "resnet18"),
        ((1, 8, 20), "resnet18"),
        ((1, 20, 8), "resnet18"),
    ],
)
def test_small_images_get_the_small_network(shape, name):
    assert suited_to(shape) == name
    assert build_model(name, shape, 3, seed=0).eval()(torch.randn(2, *shape)).shape == (2, 3)


def test_a_frozen_parameter_is_not_trainable():
    model = build_model("small-cnn", (1, 8, 8), 10, seed=0)
    model.head.bias.requires_grad_(False)
    assert "head.bias" not in parameter_names(model)


def test_parameter_counts_equal_the_published_ones():
    assert size(build_model("resnet18", (3, 224, 224), 1000, seed=0, stem="imagenet")) == 11_689_512
    assert size(build_model("resnet18", (3, 32, 32), 10, seed=0)) == 11_173_962
    assert size(build_model("resnet18", (3, 32, 32), 10, seed=0, norm="group")) == 11_173_962
    assert 20_000 < size(build_model("small-cnn", (1, 8, 8), 10, seed=0)) < 40_000


def test_parameter_names_equal_torchvisions():
    state = build_model("resnet18", (3, 224, 224), 1000, seed=0, stem="imagenet").state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    golden = {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.weight": (64,),
        "bn1.num_batches_tracked": (),
        "layer1.0.conv1.weight": (64, 64, 3, 3),
        "layer1.1.bn2.running_var": (64,),
        "layer2.0.conv1.weight": (128, 64, 3, 3),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer2.0.downsample.1.running_mean": (128,),
        "layer4.1.conv2.weight": (512, 512, 3, 3),
        "fc.weight": (1000, 512),
        "fc.bias": (1000,),
    }
    assert golden.items() <= shapes.items()
    assert len(shapes) == 122
    assert list(shapes)[:3] == ["conv1.weight", "bn1.weight", "bn1.bias"]
    assert not any(name.startswith(("head", "layer1.0.downsample")) for name in shapes)


@pytest.mark.parametrize(("stem", "side"), [("3x3", 4), ("imagenet", 1)])
def test_stems_keep_or_quarter_the_resolution(stem, side):
    model = build_model("resnet18", (3, 32, 32), 10, seed=0, stem=stem).eval()
    seen = []
    model.layer4.register_forward_hook(lambda _module, _input, output: seen.append(output.shape))
    model(torch.zeros(1, 3, 32, 32))
    assert seen == [(1, 512, side, side)]


def test_weights_start_as_he_proposed():
    model = build_model("resnet18", (3, 32, 32), 10, seed=0)
    deviation = model.layer3[1].conv2.weight.std().item()
    assert deviation == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)
    assert torch.equal(model.bn1.weight, torch.ones(64))
    assert not model.bn1.bias.any()


@pytest.mark.parametrize("name", ["resnet18", "small-cnn"])
def test_weights_depend_on_the_seed_alone(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build_model(name, (3, 32, 32), 10, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert same(build_model(name, (3, 32, 32), 10, seed=1), first)
    assert not same(build_model(name, (3, 32, 32), 10, seed=2), first)


def digits():
    pixels, labels = load_digits(return_X_y=True)
    pixels = (pixels - pixels.mean()) / pixels.std()
    images, classes = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    cut = len(labels) // 5
    return images[order[cut:]], classes[order[cut:]], images[order[:cut]], classes[order[:cut]]


def test_the_small_network_learns_digits():
    images, labels, test_images, test_labels = digits()
    model = build_model("small-cnn", (1, 8, 8), 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    order = torch.Generator().manual_seed(0)
    for _ in range(8):
        for batch in torch.randperm(len(labels), generator=order).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (model(test_images).argmax(dim=1) == test_labels).double().mean().item()
    assert accuracy > 0.9


def saved(path, model, **changes):
    tensors = {**model.state_dict(), **changes}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)
    return str(path)


@pytest.mark.parametrize(("name", "shape", "settings"), VARIANTS[2:5])
def test_weights_come_back_from_a_file(tmp_path, name, shape, settings):
    first = build_model(name, shape, 7, seed=1, **settings)
    path = saved(tmp_path / "w.safetensors", first)
    assert same(build_model(name, shape, 7, seed=2, weights=path, **settings), first)


def test_a_head_for_another_number_of_classes_keeps_its_initial_weights(tmp_path):
    other = build_model("small-cnn", (1, 8, 8), 10, seed=1)
    model = build_model("small-cnn", (1, 8, 8), 3, seed=2, weights=saved(tmp_path / "w.safetensors", other))
    assert torch.equal(model.hidden.weight, other.hidden.weight)
    assert torch.equal(model.head.weight, build_model("small-cnn", (1, 8, 8), 3, seed=2).head.weight)


def test_weights_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_WEIGHTS", str(tmp_path))
    other = build_model("small-cnn", (1, 8, 8), 3, seed=1)
    path = saved(tmp_path / "tiny-pretrained.safetensors", other)
    assert same(build_model("small-cnn", (1, 8, 8), 3, seed=2, weights="tiny-pretrained"), other)
    with pytest.raises(InputError) as caught:
        build_model("small-cnn", (3, 8, 8), 3, seed=2, weights="tiny-pretrained")
    assert str(caught.value).startswith(f"{path}: conv1.weight is")


@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16])
def test_weights_kept_in_half_precision_become_float32(tmp_path, kept):
    first = build_model("resnet18", (3, 16, 16), 7, seed=1, stem="imagenet")
    tensors = {
        name: tensor.to(kept) if tensor.is_floating_point() else tensor for name, tensor in first.state_dict().items()
    }
    save_file(tensors, tmp_path / "w.safetensors")
    model = build_model("resnet18", (3, 16, 16), 3, seed=2, stem="imagenet", weights=tmp_path / "w.safetensors")
    fresh = build_model("resnet18", (3, 16, 16), 3, seed=2, stem="imagenet").state_dict()
    for name, tensor in model.state_dict().items():
        expected = fresh[name] if name.startswith("fc.") else tensors[name].to(tensor.dtype)
        assert torch.equal(tensor, expected), name
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32, torch.int64}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden.bias": None}, "hidden.bias is nothing, the model has float32 48; check name, shape, stem and norm"),
        ({"head.bias": None}, "head.bias is nothing, the model has float32 10; check name, shape, stem and norm"),
        ({"extra": torch.zeros(2)}, "extra is float32 2, the model has nothing; check name, shape, stem and norm"),
        (
            {"conv1.weight": torch.zeros(16, 3, 3, 3)},
            "conv1.weight is float32 16x3x3x3, the model has float32 16x1x3x3; check name, shape, stem and norm",
        ),
        (
            {"conv1.bias": torch.zeros(16, dtype=torch.float64)},
            "conv1.bias is float64 16, the model has float32 16; check name, shape, stem and norm",
        ),
        (
            {"head.weight": torch.zeros(10, 49)},
            "head.weight is float32 10x49, the model has float32 10x48; check name, shape, stem and norm",
        ),
        (
            {"head.bias": torch.zeros(9)},
            "head.bias is float32 9, the model has float32 10; check name, shape, stem and norm",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, message):
    path = saved(tmp_path / "w.safetensors", build_model("small-cnn", (1, 8, 8), 10, seed=0), **changes)
    with pytest.raises(InputError) as caught:
        build_model("small-cnn", (1, 8, 8), 10, seed=0, weights=path)
    assert str(caught.value) == f"{path}: {message}"


def pretend_torchvision(monkeypatch, get_state_dict):
    weights = SimpleNamespace(IMAGENET1K_V1=SimpleNamespace(get_state_dict=get_state_dict))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchvision.models", SimpleNamespace(ResNet18_Weights=weights))


def imagenet_model(classes=10, **settings):
    return build_model("resnet18", (3, 224, 224), classes, seed=0, stem="imagenet", **settings)


def test_torchvisions_weights_load_without_their_head(monkeypatch):
    theirs = build_model("resnet18", (3, 224, 224), 1000, seed=9, stem="imagenet")
    pretend_torchvision(monkeypatch, lambda progress: theirs.state_dict())
    model = imagenet_model(weights="torchvision")
    assert torch.equal(model.layer4[1].conv2.weight, theirs.layer4[1].conv2.weight)
    assert torch.equal(model.head.weight, imagenet_model().head.weight)
    with pytest.raises(InputError, match=r"torchvision: conv1\.weight is float32 64x3x7x7, the model has"):
        build_model("resnet18", (3, 32, 32), 10, seed=0, weights="torchvision")


def test_without_torchvision_the_remedy_is_named(monkeypatch):
    def no_network(progress):
        raise OSError("no route to host")

    pretend_torchvision(monkeypatch, no_network)
    with pytest.raises(InputError, match=r"cannot be had \(no route to host\); .*, or set model\.weights="):
        imagenet_model(weights="torchvision")
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(InputError, match=r"pip install torchvision .*, or set model\.weights=\S+ \(make it with"):
        imagenet_model(weights="torchvision")


FORM = "give (channels, height, width), each 1 or more like num_classes; projection 0 or more"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "vgg"}, "no model is called 'vgg'; choose one of resnet18, small-cnn"),
        ({"shape": (8, 8)}, f"shape=(8, 8), num_classes=10, projection=0: {FORM}"),
        ({"shape": (1, 0, 8)}, f"shape=(1, 0, 8), num_classes=10, projection=0: {FORM}"),
        ({"num_classes": 0}, f"shape=(1, 8, 8), num_classes=0, projection=0: {FORM}"),
        ({"norm": "layer"}, "norm must be 'batch', 'group' or 'none', not 'layer'"),
        ({"stem": "imagenet"}, "small-cnn has no stem to choose; leave out stem='imagenet'"),
        ({"name": "resnet18", "stem": "5x5"}, "stem must be '3x3' or 'imagenet', not '5x5'"),
        (
            {"name": "resnet18", "norm": "none"},
            "resnet18 does not train without normalisation; norm must be 'batch' or 'group'",
        ),
        ({"weights": "w.pth"}, "w.pth: weights must be a .safetensors file, 'torchvision' or 'cifar100-pretrained'"),
        ({"weights": "no.safetensors"}, "no.safetensors: no such file"),
        ({"weights": "torchvision"}, "torchvision has no weights for small-cnn; give a .safetensors file"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        build_model(**{"name": "small-cnn", "shape": (1, 8, 8), "num_classes": 10, "seed": 0, **arguments})
    assert str(caught.value) == message


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(InputError, match=r"w\.safetensors: not a readable \.safetensors file"):
        build_model("small-cnn", (1, 8, 8), 10, seed=0, weights=path)
