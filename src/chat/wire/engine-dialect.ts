/**
 * How engines differ in request fields: presets by name or by host, the operator's changes, and
 * what rejections of an engine have shown.
 */
import type { Config } from '../../config/config.ts';
import type { ChatProtocol } from '../../engines/engines.ts';
import type { JsonObject } from '../../json/json-scan.ts';

export interface EngineDialect {
  readonly protocol: ChatProtocol;
  /** Name of the output cap; some engines read only one, some reject both together. */
  readonly outputCap: 'both' | 'max_tokens' | 'max_completion_tokens';
  /** Whether the role `developer` is supported; otherwise it becomes `system`. */
  readonly developerRole: boolean;
  readonly promptCacheRetention: boolean;
  readonly fallbacks: boolean;
  /** Whether `extra_body` has members of the engine itself. */
  readonly extraBody?: boolean;
  readonly thinkingSwitch: boolean;
  /** Members that turn reasoning off; the effort is then left out. */
  readonly thinkingOff?: JsonObject;
  /** Other names of members. */
  readonly renamed: readonly (readonly [name: string, engineName: string])[];
  /** Length of the ids of tool calls, if the engine accepts only letters and digits of that length. */
  readonly callIdCharacters?: number;
  /** Models that reject the tool calls of a message if the first one has no signature: all but these. */
  readonly unsignedCalls: RegExp | undefined;
  /** Members of a last message by the assistant, which the engine rejects otherwise. */
  readonly lastMessage?: JsonObject;
  /**
   * Members of a request whose last message the engine continues, empty if it always does;
   * `undefined` if it begins another message instead.
   */
  readonly prefill: JsonObject | undefined;
  /** Whether content parts may have `cache_control`. */
  readonly cacheMarks: boolean;
  /** Whether to request a prompt cache for a chat without marks. */
  readonly cachePrompts?: boolean;
  /** Whether chunks are padded with random text unless the request declines. */
  readonly padding: boolean;
  /** Whether to request usage in every chunk (vLLM, SGLang). */
  readonly continuousUsage: boolean;
  readonly cacheSalt: boolean;
  /** Whether `completion_tokens` includes reasoning; otherwise only `total_tokens` does. */
  readonly countsReasoning: boolean;
  /** Number of stop texts that the engine accepts. */
  readonly maxStops: number;
  readonly leaveOut: readonly string[];
  readonly leaveOutOfMessages: readonly string[];
}

type Engine = Config['engines'][string];
type Preset = Exclude<Engine['dialect'], 'auto'>;

/** Self-hosted servers ignore the name of the cap that they do not know. */
const SELF_HOSTED: EngineDialect = {
  protocol: 'openai',
  outputCap: 'both',
  developerRole: false,
  promptCacheRetention: false,
  fallbacks: false,
  thinkingSwitch: true,
  padding: false,
  continuousUsage: false,
  renamed: [],
  unsignedCalls: undefined,
  cacheMarks: false,
  cacheSalt: true,
  countsReasoning: true,
  maxStops: Infinity,
  // vLLM and SGLang need both. llama.cpp and Ollama always continue, and ignore them.
  prefill: { continue_final_message: true, add_generation_prompt: false },
  leaveOut: [],
  leaveOutOfMessages: [],
};
const ALWAYS: JsonObject = {};
/** A mark for a prompt cache, in messages, their parts and calls, and in tools. */
export const CACHE_MARK = 'cache_control';
const HOSTED: EngineDialect = {
  ...SELF_HOSTED,
  outputCap: 'max_completion_tokens',
  thinkingSwitch: false,
  cacheSalt: false,
  maxStops: 4,
  prefill: undefined,
  leaveOutOfMessages: [CACHE_MARK, 'extra_content', 'reasoning_details'],
};
const OLDER_CAP: EngineDialect = { ...HOSTED, outputCap: 'max_tokens' };

const NO_REASONING = [CACHE_MARK, 'extra_content', 'reasoning_content', 'reasoning_details'];
/** Also required by the tokenizer of Mistral in vLLM, whose error shows it. */
const MISTRAL_ID_CHARACTERS = 9;

const PRESETS: Readonly<Record<Preset, EngineDialect>> = {
  'self-hosted': SELF_HOSTED,
  openai: { ...HOSTED, developerRole: true, promptCacheRetention: true, padding: true },
  anthropic: { ...HOSTED, maxStops: Infinity, prefill: ALWAYS },
  deepseek: { ...OLDER_CAP, maxStops: 16, thinkingOff: { thinking: { type: 'disabled' } } },
  gemini: {
    ...OLDER_CAP,
    extraBody: true,
    maxStops: 5,
    countsReasoning: false,
    leaveOutOfMessages: [CACHE_MARK],
    unsignedCalls: /gemini-[12]/,
  },
  groq: { ...HOSTED, prefill: ALWAYS, leaveOutOfMessages: NO_REASONING },
  litellm: {
    ...OLDER_CAP,
    maxStops: Infinity,
    cacheMarks: true,
    prefill: ALWAYS,
    leaveOutOfMessages: [],
  },
  mistral: {
    ...OLDER_CAP,
    maxStops: Infinity,
    leaveOutOfMessages: NO_REASONING,
    renamed: [['seed', 'random_seed']],
    callIdCharacters: MISTRAL_ID_CHARACTERS,
    lastMessage: { prefix: true },
    prefill: ALWAYS,
  },
  openrouter: {
    ...OLDER_CAP,
    cacheMarks: true,
    maxStops: Infinity,
    prefill: ALWAYS,
    leaveOutOfMessages: [],
    thinkingOff: { reasoning: { effort: 'none' } },
  },
  xai: { ...HOSTED, countsReasoning: false },
};

/** Every member that a translation can carry is kept. */
const TRANSLATED: EngineDialect = {
  ...OLDER_CAP,
  cacheMarks: true,
  maxStops: Infinity,
  prefill: ALWAYS,
  leaveOutOfMessages: [],
};

const RESPONSES: EngineDialect = {
  ...TRANSLATED,
  padding: true,
  prefill: undefined,
  promptCacheRetention: true,
};

/** Dialect of a model that an engine of chat completions serves by the Responses API only. */
export const RESPONSES_ONLY: EngineDialect = { ...RESPONSES, protocol: 'responses' };

const HOSTS: readonly (readonly [host: RegExp, preset: Preset])[] = [
  [/^api\.openai\.com$|\.(?:openai|cognitiveservices|services\.ai)\.azure\.com$/, 'openai'],
  [/^api\.anthropic\.com$/, 'anthropic'],
  [/^api\.deepseek\.com$/, 'deepseek'],
  [/^generativelanguage\.googleapis\.com$/, 'gemini'],
  [/^api\.groq\.com$/, 'groq'],
  [/^api\.mistral\.ai$/, 'mistral'],
  [/^openrouter\.ai$/, 'openrouter'],
  [/^api\.x\.ai$/, 'xai'],
];

const EMBEDDED: EngineDialect = { ...SELF_HOSTED, prefill: undefined };
const WITHOUT_SALT: EngineDialect = { ...SELF_HOSTED, cacheSalt: false, prefill: ALWAYS };
/** Engines that are found on local ports. */
const LOCAL: Readonly<Record<string, EngineDialect>> = {
  vllm: SELF_HOSTED,
  ollama: WITHOUT_SALT,
  'llama.cpp': WITHOUT_SALT,
  'lm-studio': { ...WITHOUT_SALT, prefill: undefined },
};

export function localDialect(engineId: string): EngineDialect {
  // A second engine of a kind has a number, such as `vllm-2`.
  return LOCAL[engineId] ?? LOCAL[engineId.replace(/-\d{1,9}$/, '')] ?? EMBEDDED;
}

type DialectSettings = Pick<Engine, 'url' | 'dialect' | 'quirks' | 'continuousUsage'> &
  Partial<Pick<Engine, 'protocol' | 'provider' | 'cachePrompts'>>;

export function engineDialect({
  protocol = 'openai',
  url,
  dialect,
  quirks,
  continuousUsage,
  provider,
  cachePrompts = false,
}: DialectSettings): EngineDialect {
  const { prefill, ...others } = quirks;
  const given = Object.fromEntries(
    Object.entries(others).filter(([, value]) => value !== undefined),
  );
  const dialectOf = (preset: EngineDialect): EngineDialect => {
    if (prefill === undefined) return { ...preset, ...given };
    return { ...preset, ...given, prefill: prefill ? (preset.prefill ?? ALWAYS) : undefined };
  };
  if (protocol === 'anthropic') return { ...dialectOf(TRANSLATED), protocol, cachePrompts };
  if (protocol === 'responses') return { ...dialectOf(RESPONSES), protocol };
  // A provider package gets everything that its provider may keep.
  const detected = provider === undefined ? presetOf(url) : 'openrouter';
  const preset = PRESETS[dialect === 'auto' ? detected : dialect];
  return { ...dialectOf(preset), continuousUsage };
}

function presetOf(url: string): Preset {
  const host = URL.parse(url)?.hostname ?? '';
  return HOSTS.find(([pattern]) => pattern.test(host))?.[1] ?? 'self-hosted';
}

export interface RefusedParameter {
  readonly name: string;
  readonly inMessages: boolean;
  /** The rejected inner member; `length` of the id of a tool call. */
  readonly inner: string | undefined;
}

/** A request without these would be a different request. */
const ESSENTIAL = new Set(
  (
    'model messages stream n stop tools tool_choice response_format logprobs top_logprobs ' +
    'functions function_call modalities audio continue_final_message add_generation_prompt'
  ).split(' '),
);
const ESSENTIAL_OF_MESSAGES = new Set(
  'role content tool_calls tool_call_id id type function'.split(' '),
);

/**
 * Returns the dialect without the parameter; `undefined` if it is essential or already left out.
 * One name of the output cap always stays.
 */
export function withoutRefused(
  dialect: EngineDialect,
  { name, inMessages, inner }: RefusedParameter,
): EngineDialect | undefined {
  if (inMessages) {
    if (inner === 'length' && dialect.callIdCharacters === undefined) {
      return { ...dialect, callIdCharacters: MISTRAL_ID_CHARACTERS };
    }
    const { leaveOutOfMessages } = dialect;
    if (ESSENTIAL_OF_MESSAGES.has(name) || leaveOutOfMessages.includes(name)) return undefined;
    return { ...dialect, leaveOutOfMessages: [...leaveOutOfMessages, name] };
  }
  if (name === 'max_tokens' || name === 'max_completion_tokens') {
    if (dialect.outputCap !== 'both') return undefined;
    const outputCap = name === 'max_tokens' ? 'max_completion_tokens' : 'max_tokens';
    return { ...dialect, outputCap };
  }
  if (inner === 'continuous_usage_stats' && dialect.continuousUsage) {
    return { ...dialect, continuousUsage: false };
  }
  if (name === 'cache_salt' && dialect.cacheSalt) return { ...dialect, cacheSalt: false };
  if (inner === 'include_obfuscation' && dialect.padding) return { ...dialect, padding: false };
  if (ESSENTIAL.has(name) || dialect.leaveOut.includes(name)) return undefined;
  return { ...dialect, leaveOut: [...dialect.leaveOut, name] };
}
