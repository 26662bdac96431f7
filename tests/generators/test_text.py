"""Text-to-image: one address, one image; a class is its prompt; large images are scaled down without aliasing."""

import json
import logging
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from fedeas import InputError
from fedeas.core.errors import RunError
from fedeas.generators import text as module
from fedeas.generators.kinds import GeneratorContext, parse_generator
from fedeas.generators.text import TextToImage, to_bytes

diffusers = pytest.importorskip("diffusers")
transformers = pytest.importorskip("transformers")

NAMES = ("cat", "aquarium_fish", "dog")

# What diffusers 0.42 does inside, which torch 2.13 and numpy 2.4 object to.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def offline():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")  # for those who read it late
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        yield


def tokenizer(folder):
    """CLIP's, with letters for its words."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = letters + [f"{letter}</w>" for letter in letters] + ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return transformers.CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=32, pad_token="<|endoftext|>"
    )


def text_encoder():
    return transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=54, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=32, projection_dim=16, bos_token_id=52, eos_token_id=53, pad_token_id=53,
        )
    )  # fmt: skip


def unet():
    return diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, attention_head_dim=4, norm_num_groups=4,
    )  # fmt: skip


def vae():
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2, latent_channels=4,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, sample_size=32,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Stable Diffusion pipeline as on the Hub, of some ten thousand random weights."""
    top = tmp_path_factory.mktemp("models")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        pipeline = diffusers.StableDiffusionPipeline(
            vae=vae(), text_encoder=text_encoder(), tokenizer=tokenizer(top / "words"), unet=unet(),
            scheduler=diffusers.EulerDiscreteScheduler(timestep_spacing="trailing", steps_offset=1),
            safety_checker=None, feature_extractor=None, requires_safety_checker=False,
        )  # fmt: skip
    pipeline.save_pretrained(top / "tiny", safe_serialization=True)
    return top / "tiny"


def loaded(folder, class_names=NAMES, shape=(3, 8, 8), size=32, batch_size=4, **settings):
    return TextToImage.load(folder, class_names, shape, device="cpu", size=size, batch_size=batch_size, **settings)


@pytest.fixture(scope="module")
def generator(folder):
    return loaded(folder)


def with_scheduler(folder, scheduler, **settings):
    made = loaded(folder, **settings)
    made.pipeline.scheduler = scheduler.from_config(made.pipeline.scheduler.config)
    return made


def test_images_are_bytes_of_the_shape(generator):
    images = generator.sample([0, 1, 2, 2, 1], [0, 1, 2, 3, 2**63 - 1])
    assert images.shape == (5, 3, 8, 8)
    assert images.dtype == np.uint8
    assert images.std() > 5
    assert generator.sample([], []).shape == (0, 3, 8, 8)
    assert (generator.num_classes, generator.shape, generator.batch_size) == (3, (3, 8, 8), 4)


def check_law(generator):
    labels, index = np.array([0, 1, 2, 0, 1, 0, 2]), np.array([0, 0, 0, 1, 1 << 32, 2, 5])
    images = generator.sample(labels, index)
    order = np.array([5, 2, 6, 0, 4, 1, 3])
    assert np.array_equal(generator.sample(labels[order], index[order]), images[order])
    for place in (0, 3, 6):
        assert np.array_equal(generator.sample(labels[[place]], index[[place]]), images[[place]])
    assert np.array_equal(generator.sample([1, 1, 1], [0, 0, 0]), images[[1, 1, 1]])
    assert len(np.unique(images.reshape(7, -1), axis=0)) == 7


def test_one_address_one_image(generator):
    check_law(generator)


@pytest.mark.parametrize("scheduler", ["EulerAncestralDiscreteScheduler", "LCMScheduler"])
def test_noise_of_the_scheduler_depends_on_the_address_too(folder, scheduler):
    made = with_scheduler(folder, getattr(diffusers, scheduler), steps=2, guidance=1.5)
    check_law(made)
    # Were that noise left out, or the same for all, these would be the same as well.
    first = made.sample([0], [0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "noise_keys", lambda labels, index: [0 for _ in labels])
        assert not np.array_equal(made.sample([0], [0]), first)


def test_torchs_random_state_neither_matters_nor_changes(generator):
    torch.manual_seed(1)
    before, first = torch.get_rng_state(), generator.sample([1], [4])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert np.array_equal(generator.sample([1], [4]), first)


def test_a_class_is_its_prompt(generator, monkeypatch):
    assert generator.prompts == ("a photo of a cat", "a photo of a aquarium fish", "a photo of a dog")
    asked = []
    call = type(generator.pipeline).__call__

    def listening(self, **inputs):
        asked.append(inputs)
        return call(self, **inputs)

    monkeypatch.setattr(type(generator.pipeline), "__call__", listening)
    generator.sample([2, 1], [0, 0])
    assert [inputs["prompt"] for inputs in asked] == [[generator.prompts[label] for label in (2, 1, 1, 1)]]
    assert asked[0]["latents"].shape == (4, 4, 16, 16)


def test_the_prompt_changes_the_image(generator, monkeypatch):
    same = lambda labels, index, count: np.ones((len(labels), count)) * np.linspace(-2, 2, count)  # noqa: E731
    monkeypatch.setattr(module, "address_noise", same)
    images = generator.sample([0, 1, 0], [0, 0, 1])
    assert np.array_equal(images[0], images[2])
    assert not np.array_equal(images[0], images[1])


@pytest.mark.usefixtures("with_bf16")
def test_the_fingerprint_depends_on_what_determines_the_images(folder, generator):
    other_weights = loaded(folder)
    with torch.no_grad():
        next(other_weights.pipeline.text_encoder.parameters())[0, 0] += 1
    others = [
        loaded(folder, template="{}"),
        loaded(folder, class_names=("cat", "fish", "dog")),
        loaded(folder, steps=2),
        loaded(folder, guidance=2),
        loaded(folder, size=64),
        loaded(folder, shape=(1, 8, 8)),
        loaded(folder, precision="bf16"),
        with_scheduler(folder, diffusers.LCMScheduler),
        other_weights,
    ]
    assert len({generator.fingerprint, *(other.fingerprint for other in others)}) == 10
    assert loaded(folder, batch_size=2).fingerprint == generator.fingerprint
    assert len(generator.fingerprint) == 64


def test_the_fingerprint_stays_when_the_model_moves(folder, generator, tmp_path):
    shutil.copytree(folder, tmp_path / "moved")
    assert loaded(tmp_path / "moved").fingerprint == generator.fingerprint


def test_the_description_is_one_line(generator, folder):
    expected = f"{folder}, 'a photo of a {{}}', 1 step, guidance 0, 32 x 32 to 8 x 8, fp32"
    assert generator.description == expected


@pytest.mark.parametrize("cell", [1, 2, 4])
def test_a_fine_checkerboard_becomes_grey(cell):
    rows, columns = np.indices((512, 512)) // cell
    board = torch.from_numpy(((rows + columns) % 2).astype(np.float32)).expand(1, 3, 512, 512)
    box = board.reshape(1, 3, 32, 16, 32, 16).mean(dim=(3, 5)).numpy() * 255
    assert box.std() == 0
    inside = to_bytes(board, (3, 32, 32))[:, :, 2:-2, 2:-2]
    assert np.abs(inside - box[:, :, 2:-2, 2:-2]).max() <= 1


@pytest.mark.parametrize("side", [8, 32, 28])
def test_scaling_equals_pillows(side):
    picture = np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(picture).resize((side, side), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    got = to_bytes(torch.from_numpy(picture).permute(2, 0, 1)[None] / 255, (3, side, side))[0]
    assert np.abs(got.astype(int) - expected).max() <= 1


def test_grey_is_luminance():
    colours = torch.eye(3).reshape(3, 3, 1, 1).expand(3, 3, 16, 16)
    assert to_bytes(colours, (1, 2, 2))[:, 0, 0, 0].tolist() == [76, 150, 29]


def test_grey_images_of_the_pipeline(folder):
    assert loaded(folder, shape=(1, 4, 6)).sample([0], [0]).shape == (1, 1, 4, 6)


def running_out_above(limit, pictures):
    def limited(self, labels, index):
        if len(labels) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return pictures(self, labels, index)

    return limited


def test_out_of_memory_halves_the_batch(folder, generator, monkeypatch, caplog):
    labels, index = np.arange(9) % 3, np.arange(9)
    expected = generator.sample(labels, index).astype(int)
    monkeypatch.setattr(TextToImage, "_pictures", running_out_above(2, TextToImage._pictures))
    short = loaded(folder, batch_size=8)
    with caplog.at_level(logging.WARNING, "fedeas"):
        images = short.sample(labels, index)
    assert np.abs(images - expected).max() <= 1  # another batch may round otherwise
    assert [record.message.split(": ")[1] for record in caplog.records if record.name == "fedeas"] == [
        "out of memory; from here on 4 images at once",
        "out of memory; from here on 2 images at once",
    ]
    assert short.batch_size == 2


def test_no_memory_for_one_image_ends_the_run(folder, monkeypatch):
    monkeypatch.setattr(TextToImage, "_pictures", running_out_above(0, TextToImage._pictures))
    with pytest.raises(RunError, match="memory does not hold one image at 32 x 32; lower size"):
        loaded(folder).sample([0], [0])


def test_numbers_that_are_not_finite_are_an_error(folder):
    broken = loaded(folder)
    with torch.no_grad():
        broken.pipeline.vae.post_quant_conv.bias.fill_(float("nan"))
    with pytest.raises(RunError, match="gave numbers that are not finite; fp32 may be too coarse for it"):
        broken.sample([0], [0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"template": "a photo"}, "template 'a photo' must contain {} once, where the name of the class goes"),
        ({"template": "{} and {}"}, "template '{} and {}' must contain {} once, where the name of the class goes"),
        ({"class_names": ()}, "class names []: give one for each class; the model is asked for them"),
        ({"class_names": ("a", " ")}, "class names ['a', ' ']: give one for each class; the model is asked for them"),
        ({"shape": (2, 8, 8)}, "images must have 1 or 3 channels and at least one pixel, not shape (2, 8, 8)"),
        ({"size": 36}, "size must be a multiple of 8, not 36"),
        ({"steps": 0}, "steps must be a whole number, 1 or more, not 0"),
        ({"guidance": -1}, "guidance must be a number from 0 to 3.4e+38, not -1"),
        ({"precision": "fp8"}, "precision must be one of auto, fp32, bf16, fp16, not 'fp8'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(folder, settings, message):
    with pytest.raises(InputError) as caught:
        loaded(folder, **settings)
    assert str(caught.value) == message


def test_invalid_addresses_are_refused(generator):
    with pytest.raises(InputError, match="label 3 is not between 0 and 2"):
        generator.sample([0, 3], [0, 0])
    with pytest.raises(InputError, match="2 labels but 1 indices"):
        generator.sample([0, 1], [0])


def test_an_invalid_device_is_refused(folder):
    with pytest.raises(InputError, match="device 'abacus' cannot be used"):
        TextToImage.load(folder, NAMES, device="abacus")


def test_missing_models_are_refused(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        loaded(tmp_path / "nowhere")
    with pytest.raises(InputError) as caught:
        loaded("nobody/nothing")
    message = str(caught.value)
    assert message.startswith("text-to-image model 'nobody/nothing' cannot be loaded (")
    assert message.endswith("; give a folder that holds it, with its weights as safetensors")
    assert "offline mode is enabled" in message
    assert "\n" not in message
    with pytest.raises(InputError, match=r"cannot be loaded .*model_index\.json"):
        loaded(tmp_path)


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder"])
def test_pickled_weights_are_refused(folder, tmp_path, part):
    shutil.copytree(folder, tmp_path / "pickled")
    (safe,) = (tmp_path / "pickled" / part).glob("*.safetensors")
    kind = "pytorch_model.bin" if part == "text_encoder" else "diffusion_pytorch_model.bin"
    torch.save(dict.fromkeys(["weight"], torch.zeros(1)), safe.with_name(kind))
    safe.unlink()
    with pytest.raises(InputError, match=r"cannot be loaded .*; give a folder that holds it, with its weights as safe"):
        loaded(tmp_path / "pickled")


def test_pipelines_without_a_unet_are_refused():
    class Transformer:
        vae = scheduler = object()

    with pytest.raises(InputError, match="a Transformer has no unet; use a model such as stabilityai/sd-turbo"):
        TextToImage(Transformer(), NAMES, (3, 8, 8))


@pytest.mark.parametrize("package", ["diffusers", "transformers"])
def test_missing_packages_are_named(folder, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}: pip install 'fedeas\[text\]'"):
        loaded(folder)


def test_a_config_names_the_model_and_the_run_gives_it_the_classes(folder):
    images = np.zeros((3, 1, 8, 8), dtype=np.uint8)
    setting = GeneratorContext("drawings", images, np.arange(3), NAMES)
    source = parse_generator(f'sd-turbo(model="{folder}", template="a sketch of a {{}}", size=32)')
    made = source.ready(setting)
    assert made.prompts == ("a sketch of a cat", "a sketch of a aquarium fish", "a sketch of a dog")
    assert made.sample([0, 2], [5, 5]).shape == (2, 1, 8, 8)
    assert parse_generator(source.spec) == source
