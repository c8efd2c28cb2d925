"""Make ``index/minilm_projection.safetensors``: the linear layer of the embedded ColBERT checkpoint.

The layer is the uncentred principal component analysis of MiniLM's token vectors, 384 -> 256: the eigenvectors of their
second-moment matrix with the largest eigenvalues. Cosine similarities of projected vectors are then as near to those
of the full vectors as a linear map of that rank can bring them. No labels are used and nothing is trained.

    python benchmarks/make_projection.py evaluation/data/corpus.jsonl index/minilm_projection.safetensors

The weights of MiniLM must have been fetched before (``hopgate lm fetch minilm``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

DIM = 256
BATCH = 32
LONGEST = 220


def main(corpus: Path, out: Path) -> None:
    """Write the projection made of a corpus (JSON Lines with ``title`` and ``text``)."""
    import torch
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    from hopgate.core.weights import resolve
    from hopgate.index import read_corpus

    weights = resolve("minilm")
    config = BertConfig(**json.loads((weights / "config.json").read_text(encoding="utf-8")))
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict(load_file(weights / "model.safetensors"), strict=False)
    tokenizer = Tokenizer.from_file(str(weights / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)

    # The marker that ColBERT puts after [CLS] is part of what the layer will see.
    marker = tokenizer.token_to_id("[unused1]")
    tokens = [tokenizer.encode(passage.long_text).ids for passage in read_corpus(corpus)]
    tokens = sorted(([ids[0], marker, *ids[1:]] for ids in tokens), key=len)
    moments = torch.zeros(config.hidden_size, config.hidden_size, dtype=torch.float64)
    count = 0
    with torch.inference_mode():
        for start in range(0, len(tokens), BATCH):
            rows = [torch.tensor(ids) for ids in tokens[start : start + BATCH]]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            mask = (ids != 0).long()
            vectors = model(ids, attention_mask=mask)[0][mask.bool()].double()
            moments += vectors.T @ vectors
            count += len(vectors)
    energies, directions = torch.linalg.eigh(moments)
    projection = directions[:, -DIM:].flip(1).T
    # An eigenvector's sign is arbitrary; fixing it makes the file the same on every machine.
    signs = projection.gather(1, projection.abs().argmax(1, keepdim=True)).sign()
    save_file({"linear.weight": (projection * signs).half().contiguous()}, out)
    out.chmod(0o644)
    kept = float(energies[-DIM:].sum() / energies.sum())
    print(
        f"{out}: {DIM} x {config.hidden_size} from {count:,} token vectors of {corpus}, keeps {kept:.1%} of the energy"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
