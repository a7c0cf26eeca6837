/**
 * Engines of each protocol for runs of coding agents: one script of turns, sent in the form of the
 * engine of the requested model. The engines count their usage, and reject requests that their
 * providers reject, such as a call without its signature.
 */
import assert from 'node:assert/strict';
import { AnthropicEngine, type Block, type Usage } from '../support/anthropic-engine.ts';
import { functionCall, message, reasoning, responds } from '../support/responses-engine.ts';
import { behave, type Behaviour, TestUpstream } from '../support/test-upstream.ts';

/** USD for a million tokens. */
const PRICE = { input: 3, output: 15, cacheInput: 0.3, cacheWrite: 3.75, cacheWrite1h: 6 };
const BYTES_PER_TOKEN = 4;
const OUTPUT_TOKENS = 41;

/** One completion of the model. */
export interface Turn {
  readonly text?: string;
  readonly calls?: readonly { readonly name: string; readonly input: object }[];
}

/** The models, each with an engine of its own. */
export const MODELS = ['rack', 'gemini', 'claude-opus', 'pro'] as const;
export type Model = (typeof MODELS)[number];

type Json = ReturnType<typeof JSON.parse>;

export class AgentEngines {
  readonly yaml: string;
  readonly #upstream: TestUpstream;
  readonly #claude: AnthropicEngine;
  /** Bodies of the requests of the conversation, in order. */
  readonly bodies: Json[] = [];
  /** Reasons for which an engine has rejected a request. */
  readonly problems: string[] = [];
  #turns: Turn[] = [];
  #hasTools = true;
  #costNano = 0;

  private constructor(upstream: TestUpstream, claude: AnthropicEngine) {
    this.#upstream = upstream;
    this.#claude = claude;
    const model = (id: Model, engine: string) =>
      `  - { id: ${id}, type: text, context: 200000, maxCompletionTokens: 32000, capabilities: [functionCalling, reasoning, reasoningEffort, vision, multipleImages], price: ${JSON.stringify(PRICE)}, replicas: [{ engine: ${engine} }] }`;
    this.yaml = `
engines:
  rack: { url: "${upstream.url}", addedPromptTokens: 1000 }
  gemini: { url: "${upstream.url}", dialect: gemini, addedPromptTokens: 1000 }
  claude: { url: "${claude.url}", protocol: anthropic, addedPromptTokens: 2000 }
  hosted: { url: "${upstream.url}", protocol: responses, addedPromptTokens: 1000 }
models:
${model('rack', 'rack')}
${model('gemini', 'gemini')}
${model('claude-opus', 'claude')}
${model('pro', 'hosted')}
`;
    upstream.otherwise = {
      kind: 'own',
      answer: (response, body) => {
        void behave(this.#answer(JSON.parse(body), body.length), response, { model: 'm', body });
      },
    };
  }

  static async start(): Promise<AgentEngines> {
    return new AgentEngines(await TestUpstream.start(), await AnthropicEngine.start());
  }

  async stop(): Promise<void> {
    await this.#upstream.kill();
    await this.#claude.stop();
  }

  /** Begins a conversation, in which every request has tools or none has. */
  play(turns: readonly Turn[], { hasTools }: { readonly hasTools: boolean }): void {
    this.#hasTools = hasTools;
    this.#turns = [...turns];
    this.bodies.length = 0;
    this.problems.length = 0;
    this.#costNano = 0;
    this.#claude.seen.length = 0;
    this.#claude.script.length = 0;
    for (let at = 0; at < 4 * turns.length; at += 1) {
      this.#claude.script.push((body) => ({
        content: claudeBlocks(this.#next(body), this.bodies.length),
        outputTokens: OUTPUT_TOKENS,
      }));
    }
  }

  /** The price of the usage that the engines have reported, in nano-USD. */
  costNano(): bigint {
    const claude = this.#claude.seen.reduce(
      (sum, { usage }) => sum + (usage === undefined ? 0 : claudeNano(usage)),
      0,
    );
    return BigInt(this.#costNano + claude);
  }

  /** The share of its prompt that each request to Claude has read from the cache. */
  readShares(): number[] {
    return this.#claude.seen.flatMap(({ usage, body }) => {
      if (usage === undefined || (body.tools?.length ?? 0) === 0) return [];
      const { input_tokens, cache_read_input_tokens, cache_creation_input_tokens } = usage;
      const prompt = input_tokens + cache_read_input_tokens + cache_creation_input_tokens;
      return [cache_read_input_tokens / prompt];
    });
  }

  /** Fails if a turn was not requested or an engine rejected a request. */
  assertPlayed(): void {
    assert.deepEqual(this.problems, []);
    const rejected = this.#claude.seen.filter(({ usage }) => usage === undefined);
    assert.deepEqual(
      rejected.map(({ sent }) => sent),
      [],
    );
    assert.equal(this.#turns.length, 0, 'every turn was requested');
  }

  /** A request without tools in a conversation with tools is beside it: a title. */
  #next(body: Json): Turn {
    if (this.#hasTools && (body.tools?.length ?? 0) === 0) return { text: 'A title' };
    this.bodies.push(body);
    const turn = this.#turns.shift();
    if (turn === undefined) this.problems.push('a request after the last turn');
    return turn ?? { text: 'Nothing is left to do.' };
  }

  #answer(body: Json, size: number): Behaviour {
    const problem = body.model === 'gemini' ? geminiProblem(body.messages) : undefined;
    if (problem !== undefined) {
      this.problems.push(problem);
      const error = { code: 400, message: problem, status: 'INVALID_ARGUMENT' };
      return { kind: 'status', status: 400, body: JSON.stringify([{ error }]) };
    }
    const turn = this.#next(body);
    const number = this.bodies.length;
    const prompt = Math.ceil(size / BYTES_PER_TOKEN);
    const cached = number > 1 ? Math.floor(prompt / 2) : 0;
    this.#costNano += Math.round(
      1_000 *
        ((prompt - cached) * PRICE.input +
          cached * PRICE.cacheInput +
          OUTPUT_TOKENS * PRICE.output),
    );
    if (body.model === 'pro') {
      const calls = (turn.calls ?? []).map(({ name, input }, at) =>
        functionCall(`${number}_${at}`, name, input),
      );
      const said = turn.text === undefined ? [] : [message(`msg_${number}`, turn.text)];
      const thought = reasoning(`rs_${number}`, [`Step ${number}`], `gAAA${number}`);
      const usage = {
        input_tokens: prompt,
        input_tokens_details: { cached_tokens: cached },
        output_tokens: OUTPUT_TOKENS,
        output_tokens_details: { reasoning_tokens: 12 },
        total_tokens: prompt + OUTPUT_TOKENS,
      };
      return responds({ output: [thought, ...said, ...calls], usage });
    }
    const usage = {
      prompt_tokens: prompt,
      completion_tokens: OUTPUT_TOKENS,
      total_tokens: prompt + OUTPUT_TOKENS,
      prompt_tokens_details: { cached_tokens: cached },
      completion_tokens_details: { reasoning_tokens: 12 },
    };
    return chatStream(turn, number, body, usage);
  }
}

/** The response of an engine of chat completions; Gemini sends each call whole, with index 0. */
function chatStream(
  { text, calls = [] }: Turn,
  number: number,
  body: Json,
  usage: Json,
): Behaviour {
  const isGemini = body.model === 'gemini';
  const made = calls.map(({ name, input }, at) => ({
    index: isGemini ? 0 : at,
    id: isGemini ? `function-call-${number}${at}` : `call_${number}_${at}`,
    type: 'function',
    function: { name, arguments: JSON.stringify(input) },
    // Only the first of the calls side by side is signed.
    ...(isGemini && at === 0
      ? { extra_content: { google: { thought_signature: `sig-${number}` } } }
      : {}),
  }));
  const finish_reason = calls.length > 0 ? 'tool_calls' : 'stop';
  const head = { id: `chat-${number}`, created: 1_764_000_000, model: 'm' };
  return {
    kind: 'own',
    answer: (response) => {
      if (body.stream !== true) {
        const content = { content: text ?? null, reasoning_content: `Step ${number}` };
        const message = { role: 'assistant', ...content, ...(made[0] ? { tool_calls: made } : {}) };
        const choices = [{ index: 0, message, finish_reason }];
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ ...head, object: 'chat.completion', choices, usage }));
        return;
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const send = (choices: Json, more: object = {}) => {
        const chunk = { ...head, object: 'chat.completion.chunk', choices, ...more };
        response.write(`data: ${JSON.stringify(chunk)}\n\n`);
      };
      const deltas = [
        { role: 'assistant', content: '' },
        { reasoning_content: `Step ${number}` },
        ...(text?.match(/.{1,9}/gs) ?? []).map((content) => ({ content })),
        ...made.map((call) => ({ tool_calls: [call] })),
      ];
      for (const delta of deltas) send([{ index: 0, delta, finish_reason: null }]);
      send([{ index: 0, delta: {}, finish_reason }]);
      send([], { usage });
      response.end('data: [DONE]\n\n');
    },
  };
}

/** As the provider: the first call of each message after the last prompt is signed. */
function geminiProblem(messages: readonly Json[]): string | undefined {
  const last = messages.findLastIndex(({ role }) => role === 'user');
  for (const [at, { tool_calls: calls }] of messages.entries()) {
    if (at < last || calls === undefined) continue;
    const signature = calls[0].extra_content?.google?.thought_signature;
    if (!/^(?:sig-\d+|skip_thought_signature_validator)$/.test(String(signature))) {
      return `Function call in the ${at + 1}. content block is missing a thought_signature`;
    }
  }
  return undefined;
}

function claudeBlocks({ text, calls = [] }: Turn, number: number): Block[] {
  return [
    { type: 'thinking', thinking: `Step ${number}` },
    ...(text === undefined ? [] : [{ type: 'text', text }]),
    ...calls.map(({ name, input }, at) => {
      return { type: 'tool_use', id: `toolu_${number}_${at}`, name, input };
    }),
  ];
}

function claudeNano({ cache_creation: written, ...usage }: Usage): number {
  return Math.round(
    1_000 *
      (usage.input_tokens * PRICE.input +
        usage.cache_read_input_tokens * PRICE.cacheInput +
        written.ephemeral_5m_input_tokens * PRICE.cacheWrite +
        written.ephemeral_1h_input_tokens * PRICE.cacheWrite1h +
        usage.output_tokens * PRICE.output),
  );
}
