/**
 * Models in the format of Codex's model catalogue (`model_catalog_url`), from which the agent reads
 * the context of a model. The entry also replaces the agent's instructions, so they are short.
 */
import type { CatalogModel } from '../catalog/catalog.ts';

/** Truncation limit of tool results. */
const TOOL_OUTPUT_TOKENS = 10_000;
const DEFAULT_EFFORT = 'medium';
const USUAL_EFFORTS = ['low', 'medium', 'high'];
/** For models with an unknown context. */
const UNKNOWN_CONTEXT = 32_768;

const INSTRUCTIONS = `You are a coding agent in a terminal. You work in the user's folder with the tools that you are given, until the task is done or you need an answer from the user.

- Read before you change: look at the files that matter, and at how the project does things already. Prefer \`rg\` for searching.
- Follow files such as AGENTS.md: their rules hold for the folder that they stand in.
- Change files with \`apply_patch\` where it is offered. Keep a change small and to the point; do not mend what nobody asked about, and never undo changes that are not yours.
- Run what proves your work: tests, the type checker, the program itself. If something fails, find the cause before you try again.
- Do nothing that cannot be undone, and send nothing out, unless the user asked for exactly that.
- Make no commits and no branches unless you are asked.
- Say what you are about to do in a sentence. At the end say briefly what you changed, what you ran and what came of it, and what is left; name files with their path and line.`;

/** Text models with tool calls, in the order of the list. */
export function codexModels(models: readonly CatalogModel[]) {
  const able = models.filter(({ capabilities }) => capabilities.has('functionCalling'));
  return { models: able.map(codexModel) };
}

function codexModel(model: CatalogModel, place: number) {
  const { id, name, capabilities, reasoningEfforts, defaultReasoningEffort, context } = model;
  const hasEfforts = capabilities.has('reasoning') && capabilities.has('reasoningEffort');
  const efforts = hasEfforts ? (reasoningEfforts ?? USUAL_EFFORTS) : [];
  const usual = [defaultReasoningEffort, DEFAULT_EFFORT, efforts[0]].find(
    (effort) => effort !== undefined && efforts.includes(effort),
  );
  return {
    slug: id,
    display_name: name,
    description: null,
    default_reasoning_level: usual ?? null,
    supported_reasoning_levels: efforts.map((effort) => ({ effort, description: effort })),
    shell_type: 'shell_command' as const,
    visibility: 'list' as const,
    supported_in_api: true,
    priority: place,
    upgrade: null,
    base_instructions: INSTRUCTIONS,
    supports_reasoning_summaries: capabilities.has('reasoning'),
    support_verbosity: false,
    default_verbosity: null,
    apply_patch_tool_type: 'freeform' as const,
    truncation_policy: { mode: 'tokens' as const, limit: TOOL_OUTPUT_TOKENS },
    supports_parallel_tool_calls: true,
    context_window: context || UNKNOWN_CONTEXT,
    experimental_supported_tools: [],
    input_modalities: capabilities.has('vision') ? ['text', 'image'] : ['text'],
  };
}
