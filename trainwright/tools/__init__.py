"""Other people's tools as steps: each runs on its own Python environment, which is built on first use, in a separate process."""

from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import BadToolInput, ToolError, ToolFailed, ToolTimeout, ToolUnavailable
from trainwright.tools.run_tool import run_tool

__all__ = ["BadToolInput", "ToolError", "ToolFailed", "ToolTimeout", "ToolUnavailable", "run_tool", "tool_environment"]
