"""Kubeflow Pipelines components: start a run, pull, preprocess and prepare data and a model, train (or submit a job and wait for it in
separate steps), export the checkpoint, evaluate, promote and register it, and clean up.

Each is a signature, a docstring and a few calls into the library. `trainwright.components.NAME` is the component, not the package of
that name: everything is imported here, so that the names below replace the packages before anybody sees them.
"""

from trainwright.components.step import IS_STEP

if not IS_STEP:  # a step imports the module of its function, and none of the others
    from trainwright.components.clean_up import clean_up
    from trainwright.components.evaluate import evaluate
    from trainwright.components.exit_handler import trainwright_exit_handler
    from trainwright.components.export_checkpoint import export_checkpoint
    from trainwright.components.initialize_dataset import initialize_dataset
    from trainwright.components.initialize_model import initialize_model
    from trainwright.components.pick_trial import pick_trial
    from trainwright.components.plan_trials import plan_trials
    from trainwright.components.preprocess_dataset import preprocess_dataset
    from trainwright.components.promote_model import promote_model
    from trainwright.components.pull_dvc_data import pull_dvc_data
    from trainwright.components.read_champion import read_champion
    from trainwright.components.register_model import register_model
    from trainwright.components.roll_back_model import roll_back_model
    from trainwright.components.start_run import start_run
    from trainwright.components.submit_train_job import submit_train_job
    from trainwright.components.train import train, train_function
    from trainwright.components.training_task import set_step_resources
    from trainwright.components.wait_train_job import wait_train_job

__all__ = [
    "clean_up",
    "evaluate",
    "export_checkpoint",
    "initialize_dataset",
    "initialize_model",
    "pick_trial",
    "plan_trials",
    "preprocess_dataset",
    "promote_model",
    "pull_dvc_data",
    "read_champion",
    "register_model",
    "roll_back_model",
    "set_step_resources",
    "start_run",
    "submit_train_job",
    "train",
    "train_function",
    "trainwright_exit_handler",
    "wait_train_job",
]
