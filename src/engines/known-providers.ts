/**
 * How the command line and the console connect a provider: by its own protocol if the server speaks it, by its
 * OpenAI-compatible API, or by a provider package.
 */

export interface KnownProvider {
  /** Members of the engine, without the key. */
  readonly engine: Readonly<Record<string, unknown>>;
  /** The usual variable of the key; absent if the provider has none. */
  readonly keyEnv?: string;
  /** Variables of further secrets, by the name of the setting. */
  readonly secrets?: Readonly<Record<string, string>>;
  /** Settings without which the provider cannot be called; one of each list is enough. */
  readonly needs?: readonly (readonly string[])[];
  /** Beginnings of the keys of its models in the price file. */
  readonly priceKeys: readonly string[];
}

function compatible(url: string, keyEnv: string, ...priceKeys: string[]): KnownProvider {
  return { engine: { url }, keyEnv, priceKeys };
}

function packaged(name: string, keyEnv: string, ...priceKeys: string[]): KnownProvider {
  return { engine: { provider: `@ai-sdk/${name}` }, keyEnv, priceKeys };
}

export const KNOWN_PROVIDERS: Readonly<Record<string, KnownProvider>> = {
  anthropic: {
    engine: { protocol: 'anthropic', url: 'https://api.anthropic.com/v1' },
    keyEnv: 'ANTHROPIC_API_KEY',
    priceKeys: ['claude-'],
  },
  openai: {
    engine: { protocol: 'responses', url: 'https://api.openai.com/v1' },
    keyEnv: 'OPENAI_API_KEY',
    priceKeys: ['gpt-', 'o1', 'o3', 'o4', 'text-embedding-', 'tts-', 'whisper-', 'openai/'],
  },
  gemini: compatible(
    'https://generativelanguage.googleapis.com/v1beta/openai',
    'GEMINI_API_KEY',
    'gemini/',
  ),
  bedrock: {
    engine: { provider: '@ai-sdk/amazon-bedrock' },
    secrets: { accessKeyId: 'AWS_ACCESS_KEY_ID', secretAccessKey: 'AWS_SECRET_ACCESS_KEY' },
    needs: [['region']],
    priceKeys: ['bedrock/', 'anthropic.', 'amazon.', 'meta.', 'mistral.', 'cohere.'],
  },
  vertex: {
    engine: { provider: '@ai-sdk/google-vertex' },
    needs: [['project'], ['location']],
    priceKeys: ['vertex_ai/', 'gemini-'],
  },
  azure: {
    ...packaged('azure', 'AZURE_API_KEY', 'azure/'),
    needs: [['resourceName', 'baseURL']],
  },
  alibaba: compatible(
    'https://dashscope-intl.aliyuncs.com/compatible-mode/v1',
    'DASHSCOPE_API_KEY',
    'dashscope/',
  ),
  assemblyai: packaged('assemblyai', 'ASSEMBLYAI_API_KEY', 'assemblyai/'),
  'black-forest-labs': packaged('black-forest-labs', 'BFL_API_KEY', 'black_forest_labs/'),
  cerebras: compatible('https://api.cerebras.ai/v1', 'CEREBRAS_API_KEY', 'cerebras/'),
  cohere: packaged('cohere', 'COHERE_API_KEY', 'command-', 'embed-', 'rerank-', 'cohere/'),
  deepgram: packaged('deepgram', 'DEEPGRAM_API_KEY', 'deepgram/'),
  deepinfra: compatible('https://api.deepinfra.com/v1/openai', 'DEEPINFRA_API_KEY', 'deepinfra/'),
  deepseek: compatible('https://api.deepseek.com/v1', 'DEEPSEEK_API_KEY', 'deepseek/'),
  elevenlabs: packaged('elevenlabs', 'ELEVENLABS_API_KEY', 'elevenlabs/'),
  fal: packaged('fal', 'FAL_API_KEY', 'fal_ai/'),
  fireworks: compatible(
    'https://api.fireworks.ai/inference/v1',
    'FIREWORKS_API_KEY',
    'fireworks_ai/',
  ),
  gladia: packaged('gladia', 'GLADIA_API_KEY', 'gladia/'),
  groq: compatible('https://api.groq.com/openai/v1', 'GROQ_API_KEY', 'groq/'),
  hume: packaged('hume', 'HUME_API_KEY', 'hume/'),
  lmnt: packaged('lmnt', 'LMNT_API_KEY', 'lmnt/'),
  luma: packaged('luma', 'LUMA_API_KEY', 'luma/'),
  mistral: compatible('https://api.mistral.ai/v1', 'MISTRAL_API_KEY', 'mistral/'),
  moonshotai: compatible('https://api.moonshot.ai/v1', 'MOONSHOT_API_KEY', 'moonshot/'),
  openrouter: compatible('https://openrouter.ai/api/v1', 'OPENROUTER_API_KEY', 'openrouter/'),
  perplexity: compatible('https://api.perplexity.ai', 'PERPLEXITY_API_KEY', 'perplexity/'),
  replicate: packaged('replicate', 'REPLICATE_API_TOKEN', 'replicate/'),
  revai: packaged('revai', 'REVAI_API_KEY', 'revai/'),
  togetherai: compatible('https://api.together.xyz/v1', 'TOGETHER_API_KEY', 'together_ai/'),
  xai: compatible('https://api.x.ai/v1', 'XAI_API_KEY', 'xai/'),
};

/** The provider of a configured engine: that of its package or host, otherwise of its name. */
export function knownProviderOf(
  name: string,
  { provider, url }: { readonly provider?: string | undefined; readonly url?: string | undefined },
): KnownProvider | undefined {
  const [, named] = provider?.split('/') ?? [];
  const host = hostOf(url);
  const same = Object.values(KNOWN_PROVIDERS).find(({ engine }) => hostOf(engine['url']) === host);
  if (named === undefined && host !== undefined && same !== undefined) return same;
  const known = named === undefined ? name : (PACKAGE_NAMES[named] ?? named);
  return Object.hasOwn(KNOWN_PROVIDERS, known) ? KNOWN_PROVIDERS[known] : undefined;
}

function hostOf(url: unknown): string | undefined {
  return URL.parse(String(url))?.hostname;
}

const PACKAGE_NAMES: Readonly<Record<string, string>> = {
  'amazon-bedrock': 'bedrock',
  google: 'gemini',
  'google-vertex': 'vertex',
};
