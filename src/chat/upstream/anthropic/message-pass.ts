/**
 * Passes a request of a Messages caller to an engine of the same protocol. The body keeps its bytes,
 * except the model, the output limit, and members that cost more than the hold covers.
 */
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { withValues } from '../../../json/json-splice.ts';
import { parsedJsonObject } from '../../../json/json-text.ts';
import { UNSOLD_MEMBERS } from '../../../engines/unsold-members.ts';
import { readUsage } from '../../../engines/usage.ts';
import { mostBytes, noOutput, outputBytes } from '../../wire/chat-choice.ts';
import {
  type ChatResponse,
  costMembers,
  type ResponseEnd,
  type ResponseFrame,
} from '../../wire/chat-response.ts';
import type { EngineStream, PassOptions, PassThrough } from '../upstream.ts';
import { addBlock } from './message-members.ts';
import { isAboutThinking } from './message-request.ts';
import { PassStream } from './pass-stream.ts';
import { clientTools } from './client-tools.ts';
import { fittingThinking } from './thinking.ts';

/**
 * Text that only this server writes: another engine's reasoning, which has to be opened, and search
 * results and citations that Anthropic has not encrypted, which its API rejects.
 */
const OWN_TEXTS = [
  '"fbx1.',
  ...['encrypted_index', 'encrypted_content'].flatMap((name) => [`"${name}":""`, `"${name}": ""`]),
];
/** Members for services of the provider with prices of their own, and those of this server. */
const LEFT_OUT = [
  'container',
  'inference_geo',
  'mcp_servers',
  'speed',
  'svc_parameters',
  ...Object.keys(UNSOLD_MEMBERS),
];

const MAX_BETAS = 32;
/**
 * Names of betas that change prices or the authentication, run a tool of the provider or another model,
 * or use tokens that the counts of a response do not include.
 */
const OTHER_BETAS =
  /^(?:advisor-tool|code-execution|compact|fallback-credit|fast-mode|files-api|inline-tools|mcp-client|mcp-tunnels|oauth|server-side-fallback|skills|user-profiles|web-fetch)-/;
/** Longer prompts of the models with this beta have other prices. */
const LONG_CONTEXT_BETA = /^context-1m-/;
const USUAL_CONTEXT_TOKENS = 200_000;

interface MessagePassOptions {
  /** The header `anthropic-beta` of the caller. */
  readonly betas: string | undefined;
  /** The context of the sold model, in tokens. */
  readonly contextTokens: number;
  readonly serviceName: string;
}

export class MessagePass implements PassThrough {
  readonly upstream = 'anthropic';
  readonly body: JsonObject;
  readonly headers: readonly string[];
  readonly #bytes: Buffer;
  readonly #leftOut: readonly string[];

  constructor(bytes: Buffer, body: JsonObject, options: MessagePassOptions) {
    const { betas, contextTokens, serviceName } = options;
    this.#bytes = bytes;
    this.#leftOut = [...LEFT_OUT, `${serviceName}_parameters`];
    this.body = body;
    const names = (betas ?? '').split(',').map((name) => name.trim());
    const isLong = contextTokens > USUAL_CONTEXT_TOKENS;
    const usual = names.filter(
      (name) =>
        /^[a-z0-9-]{1,64}$/.test(name) &&
        !OTHER_BETAS.test(name) &&
        (isLong || !LONG_CONTEXT_BETA.test(name)),
    );
    const kept = usual.slice(0, MAX_BETAS).join(',');
    this.headers = kept === '' ? [] : ['anthropic-beta', kept];
  }

  writeRequest({ model, maxOutputTokens, refusal }: PassOptions): Buffer | undefined {
    if (OWN_TEXTS.some((text) => this.#bytes.includes(text))) return undefined;
    const { body } = this;
    const changed: Record<string, unknown> = { model, max_tokens: maxOutputTokens };
    for (const name of this.#leftOut) if (Object.hasOwn(body, name)) changed[name] = undefined;
    const tools = clientTools(body['tools']);
    if (tools !== body['tools']) {
      changed['tools'] = tools;
      if (tools === undefined) changed['tool_choice'] = undefined;
    }
    const thinking = fittingThinking(body['thinking'], maxOutputTokens);
    if (thinking !== body['thinking']) changed['thinking'] = thinking;
    if (refusal !== undefined) {
      if (!isAboutThinking(refusal.body)) return undefined;
      changed['thinking'] = undefined;
      changed['messages'] = withoutThinking(body['messages']);
    }
    return withValues(this.#bytes, body, changed);
  }

  readResponse(bytes: Buffer, outputTokens: number): ChatResponse | undefined {
    const body = parsedJsonObject(bytes.toString());
    const content = body?.['content'];
    if (body?.['type'] !== 'message' || !Array.isArray(content)) return undefined;
    const tally = noOutput();
    for (const block of content) if (isJsonObject(block)) addBlock(tally, block);
    const atBytes = outputBytes(tally);
    // The engine has ignored its limit.
    if (atBytes > mostBytes(outputTokens, 0)) return undefined;
    const usage = readUsage(body['usage']);
    const reported = usage === undefined ? undefined : { usage, atBytes };
    return { source: { bytes, body }, choices: [], reported, tally };
  }

  writeResponse({ source }: ChatResponse, frame: ResponseFrame, end: ResponseEnd): Buffer {
    const added = { model: frame.model, ...costMembers(frame.serviceName, end) };
    return withValues(source.bytes, source.body, added);
  }

  newStream(outputTokens: number, frame: ResponseFrame): EngineStream {
    return new PassStream(outputTokens, frame);
  }
}

/** The messages without reasoning, for an engine that rejects its signatures. */
function withoutThinking(messages: unknown): unknown {
  if (!Array.isArray(messages)) return messages;
  return messages.flatMap((message: unknown) => {
    if (!isJsonObject(message) || !Array.isArray(message['content'])) return [message];
    const content = message['content'].filter(
      (block) => !isJsonObject(block) || !String(block['type']).endsWith('thinking'),
    );
    return content.length === 0 ? [] : [{ ...message, content }];
  });
}
