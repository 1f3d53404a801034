"""The formats of AdamW's masters and moments in FP8 runs, as declared."""

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright.contracts.precision_spec import FP8Spec, MomentsKind
from trainwright_trainer.fp8.state.optimizer import state_formats

PAPER = state_formats(OptimizerSpec(), FP8Spec(moments=MomentsKind.PAPER))
BLOCK = state_formats(OptimizerSpec(), FP8Spec(moments=MomentsKind.BLOCK))
