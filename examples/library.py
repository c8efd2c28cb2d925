"""hopgate inside a DSPy project: ask, nest, compile, save, load, swap the LM.

python examples/library.py FOLDER [MODEL]
"""

import sys
from pathlib import Path

import dspy

from hopgate.evaluation import exact_match, sample_corpus_path, sample_questions
from hopgate.index import ColBERTIndex
from hopgate.lms import DEFAULT_MODEL, CompactAdapter, lm_from_config
from hopgate.programs import ActiveQA


class WithSources(dspy.Module):  # ActiveQA inside a module of your own
    def __init__(self, index):
        super().__init__()
        self.solver = ActiveQA(index, tau=-0.25)

    def forward(self, question):
        found = self.solver(question=question)
        sources = [passage.title for hop in found.trajectory.hops for passage in hop.passages]
        return dspy.Prediction(answer=found.answer, sources=sources)


def right(gold, prediction, trace=None):
    return exact_match(prediction.answer, gold.answers)


def main(folder, model=DEFAULT_MODEL):
    dspy.configure(lm=lm_from_config(model), adapter=CompactAdapter())
    index = ColBERTIndex.build(sample_corpus_path(), folder / "index")
    train = [question.to_example() for question in sample_questions("train")]
    print("alone:", ActiveQA(index)(question=train[0].question).answer)
    teleprompter = dspy.BootstrapFewShot(right, max_bootstrapped_demos=1, max_labeled_demos=0)
    compiled = teleprompter.compile(WithSources(index), trainset=train[:3])
    compiled.save(folder / "program.json")
    loaded = WithSources(index)
    loaded.load(folder / "program.json")  # in any process; holds prompts, demos and tau, no LM, key or path
    with dspy.context(lm=lm_from_config(model)):  # another LM is this one line
        print("loaded:", loaded(question=train[1].question), "tau", loaded.solver.tau)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), *sys.argv[2:])
