/**
 * Turns messages into the prompt text that a model was trained on, with the Jinja template in its
 * GGUF file (ChatML if there is none).
 *
 * Tool calls use the Hermes format, `<tool_call>{"name", "arguments"}</tool_call>`: natively if the
 * template supports it, otherwise described in the system message.
 */
import { Template } from '@huggingface/jinja';
import type { ChatMessage, OfferedTool } from './chat-request.ts';
import type { Fault } from '../../src/core/faults.ts';
import { reasonOf } from '../../src/core/log.ts';
import { refusal } from './refusal.ts';

export const TOOL_OPEN = '<tool_call>';
export const TOOL_CLOSE = '</tool_call>';
export const THINK_OPEN = '<think>';
export const THINK_CLOSE = '</think>';

const CHATML = `{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

export interface PromptInput {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly OfferedTool[];
  readonly thinking: boolean;
  readonly variables: Readonly<Record<string, unknown>>;
}

export interface Prompt {
  readonly text: string;
  /** The completion begins inside a thinking block. */
  readonly startsThinking: boolean;
}

export type ChatTemplate = ReturnType<typeof compileTemplate>;

type Render = (variables: Record<string, unknown>) => string;

/** Compiles a template; `special` are the texts of the model's begin and end tokens. */
export function compileTemplate(
  source: string | undefined,
  special: { readonly bos: string; readonly eos: string },
) {
  const text = source ?? CHATML;
  const template = new Template(text);
  const render: Render = (variables) => template.render(variables);
  const knowsTools = text.includes(TOOL_OPEN) && text.includes('tools');
  const canReason = text.includes(THINK_CLOSE);
  return {
    /** The model can think, and thinking can be disabled. */
    canReason,
    render: (input: PromptInput): Prompt => {
      const messages = knowsTools ? input.messages : describeTools(input);
      const rendered = renderMessages(render, messages, {
        ...input.variables,
        bos_token: special.bos,
        eos_token: special.eos,
        add_generation_prompt: true,
        enable_thinking: input.thinking,
        ...(knowsTools && input.tools.length > 0
          ? { tools: input.tools.map(toolDescription) }
          : {}),
      });
      return openThought(rendered, canReason, input.thinking);
    },
  };
}

/** Opens or closes the thinking block in the prompt, so that the start of the output is known. */
function openThought(rendered: string, canReason: boolean, thinking: boolean): Prompt {
  const end = rendered.trimEnd();
  const isOpen = end.endsWith(THINK_OPEN);
  if (!canReason || end.endsWith(THINK_CLOSE)) return { text: rendered, startsThinking: false };
  const opened = isOpen ? rendered : `${rendered}${THINK_OPEN}\n`;
  if (thinking) return { text: opened, startsThinking: true };
  return { text: `${opened}\n${THINK_CLOSE}\n\n`, startsThinking: false };
}

function renderMessages(
  render: Render,
  messages: readonly ChatMessage[],
  variables: Record<string, unknown>,
): string {
  const attempt = (shown: readonly ChatMessage[]): string =>
    render({ ...variables, messages: shown.map(messageForTemplate) });
  try {
    return attempt(messages);
  } catch (error) {
    // Some templates reject a system message: prepend it to the first user message instead.
    const [first, second, ...rest] = messages;
    if (first?.role !== 'system' || second === undefined) throw rejectedByTemplate(error);
    try {
      return attempt([{ ...second, content: `${first.content}\n\n${second.content}` }, ...rest]);
    } catch (again) {
      // The template rejects the order of the messages; the caller can change it.
      throw rejectedByTemplate(again);
    }
  }
}

function rejectedByTemplate(error: unknown): Fault {
  const message = `The chat template of the model rejects these messages: ${reasonOf(error)}`;
  return refusal('invalid_request', message, 'messages');
}

function messageForTemplate(message: ChatMessage): object {
  const calls = message.tool_calls?.map(({ function: { name, arguments: text } }) => ({
    type: 'function',
    function: { name, arguments: parseArguments(text) },
  }));
  return calls === undefined ? message : { ...message, tool_calls: calls };
}

/** Templates expect the arguments as an object; text that is not JSON stays text. */
function parseArguments(text: string): unknown {
  try {
    // `JSON.parse` returns `any`.
    return JSON.parse(text) as unknown;
  } catch {
    // A caller may send back invalid JSON that a model wrote; it is passed on unchanged.
    return text;
  }
}

function toolDescription(tool: OfferedTool): unknown {
  return {
    type: 'function',
    function: {
      name: tool.name,
      description: tool.description ?? '',
      parameters: tool.parameters ?? { type: 'object', properties: {} },
    },
  };
}

/** For templates without tools: describes functions in the system message, writes calls as text. */
function describeTools(input: PromptInput): ChatMessage[] {
  const messages = input.messages.map((message): ChatMessage => {
    if (message.role === 'tool') {
      const content = `<tool_response>\n${message.content}\n</tool_response>`;
      return { role: 'user', content };
    }
    if (message.tool_calls === undefined) return message;
    const calls = message.tool_calls.map(({ function: { name, arguments: text } }) => {
      const call = `{"name": ${JSON.stringify(name)}, "arguments": ${text}}`;
      return `${TOOL_OPEN}\n${call}\n${TOOL_CLOSE}`;
    });
    return { role: 'assistant', content: [message.content, ...calls].join('\n').trim() };
  });
  if (input.tools.length === 0) return messages;
  const offered = input.tools.map((tool) => JSON.stringify(toolDescription(tool))).join('\n');
  const lead =
    `You can call these functions:\n${offered}\n\nTo call one, answer with\n${TOOL_OPEN}\n` +
    `{"name": <name>, "arguments": <object>}\n${TOOL_CLOSE}`;
  const first = messages[0];
  if (first?.role !== 'system') return [{ role: 'system', content: lead }, ...messages];
  return [{ role: 'system', content: `${first.content}\n\n${lead}` }, ...messages.slice(1)];
}
