/**
 * The models of a provider, from its own list API, with the credentials of the configuration. The
 * packages cannot list models. A provider without such an API has no entry here.
 */
import type { ProviderSettings } from '../../src/engines/embedded/program-contract.ts';
import { type JsonObject, isJsonObject } from '../../src/json/json-scan.ts';
import { parsedJson } from '../../src/json/json-text.ts';
import { ProviderFailure } from './failure.ts';

const MAX_LIST_BYTES = 4 * 1024 * 1024;
const TIMEOUT_MS = 8_000;

interface ListApi {
  /** The usual base URL, which the setting `baseURL` replaces. */
  readonly base: string;
  /** Below the base URL, or below its origin with a leading `origin:`. */
  readonly path: string;
  /** Default: a bearer token. */
  readonly headers?: (key: string) => Readonly<Record<string, string>>;
  /** Member with the list, and that with the id. Default: `data` and `id`. */
  readonly list?: string;
  readonly id?: string;
}

const xApiKey = (name: string) => (key: string) => ({ [name]: key });

const APIS: Readonly<Record<string, ListApi>> = {
  alibaba: { base: 'https://dashscope-intl.aliyuncs.com/compatible-mode/v1', path: '/models' },
  anthropic: {
    base: 'https://api.anthropic.com/v1',
    path: '/models?limit=1000',
    headers: (key) => ({ 'x-api-key': key, 'anthropic-version': '2023-06-01' }),
  },
  azure: { base: '', path: '', headers: xApiKey('api-key') },
  cerebras: { base: 'https://api.cerebras.ai/v1', path: '/models' },
  cohere: {
    base: 'https://api.cohere.com/v2',
    path: 'origin:/v1/models?page_size=1000',
    list: 'models',
    id: 'name',
  },
  deepseek: { base: 'https://api.deepseek.com', path: '/models' },
  elevenlabs: {
    base: 'https://api.elevenlabs.io',
    path: 'origin:/v1/models',
    headers: xApiKey('xi-api-key'),
    id: 'model_id',
  },
  fireworks: { base: 'https://api.fireworks.ai/inference/v1', path: '/models' },
  google: {
    base: 'https://generativelanguage.googleapis.com/v1beta',
    path: '/models?pageSize=1000',
    headers: xApiKey('x-goog-api-key'),
    list: 'models',
    id: 'name',
  },
  groq: { base: 'https://api.groq.com/openai/v1', path: '/models' },
  mistral: { base: 'https://api.mistral.ai/v1', path: '/models' },
  moonshotai: { base: 'https://api.moonshot.ai/v1', path: '/models' },
  openai: { base: 'https://api.openai.com/v1', path: '/models' },
  'openai-compatible': { base: '', path: '/models' },
  togetherai: { base: 'https://api.together.xyz/v1', path: '/models' },
  xai: { base: 'https://api.x.ai/v1', path: '/models' },
};

/** Ids of the models. Throws a `ProviderFailure`: 404 if the provider has no list. */
export async function listModels(given: ProviderSettings, signal: AbortSignal): Promise<string[]> {
  const [, name = '', part] = given.provider.split('/');
  const limits = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  if (name === 'amazon-bedrock' && part !== 'mantle') return await bedrockModels(given, limits);
  if (name === 'google-vertex') return await vertexModels(given, part ?? 'google', limits);
  const api = part === undefined ? APIS[name] : undefined;
  const base = baseOf(given, name, api);
  if (api === undefined || base === undefined) {
    throw new ProviderFailure(404, 'The provider has no list of models');
  }
  const { headers = (key: string) => ({ authorization: `Bearer ${key}` }) } = api;
  const path = name === 'azure' ? azurePath(given) : api.path;
  const url = path.startsWith('origin:')
    ? new URL(path.slice('origin:'.length), base)
    : new URL(base.replace(/\/$/, '') + path);
  const own = given.settings['headers'];
  const key = textOf(given.settings['apiKey']);
  const sent = { ...(isJsonObject(own) ? own : {}), ...(key !== undefined && headers(key)) };
  const body = await fetchJson(url, sent as Record<string, string>, limits);
  return idsIn(body, api.list ?? 'data', api.id ?? 'id');
}

function baseOf({ settings }: ProviderSettings, name: string, api: ListApi | undefined) {
  const own = textOf(settings['baseURL']);
  if (own !== undefined) return own;
  const resource = textOf(settings['resourceName']);
  if (name === 'azure' && resource !== undefined)
    return `https://${resource}.openai.azure.com/openai`;
  return api?.base === '' ? undefined : api?.base;
}

/** A dated version has the list at another path than the API without versions. */
function azurePath({ settings }: ProviderSettings): string {
  const version = textOf(settings['apiVersion']) ?? 'v1';
  return `${/^\d/.test(version) ? '' : '/v1'}/models?api-version=${version}`;
}

/** The signed request of AWS, or one with a bearer key. */
async function bedrockModels({ settings }: ProviderSettings, signal: AbortSignal) {
  const region = textOf(settings['region']) ?? '';
  const key = textOf(settings['apiKey']);
  const usual = `https://bedrock-runtime.${region}.amazonaws.com`;
  // The lists are of the control plane, whose host has another name.
  const base = (textOf(settings['baseURL']) ?? usual).replace('//bedrock-runtime.', '//bedrock.');
  const list = async (path: string): Promise<unknown> => {
    const url = new URL(base.replace(/\/$/, '') + path);
    if (key !== undefined) return fetchJson(url, { authorization: `Bearer ${key}` }, signal);
    const { AwsClient } = (await import(AWS_PACKAGE)) as { AwsClient: AwsClientClass };
    const { accessKeyId, secretAccessKey, sessionToken } = settings;
    const client = new AwsClient({
      accessKeyId,
      secretAccessKey,
      sessionToken,
      region,
      service: 'bedrock',
    });
    const { headers } = await client.sign(url.href, { method: 'GET' });
    return fetchJson(url, Object.fromEntries(headers), signal);
  };
  const models = idsIn(await list('/foundation-models'), 'modelSummaries', 'modelId');
  const profiles = await list('/inference-profiles?maxResults=1000');
  return [...models, ...idsIn(profiles, 'inferenceProfileSummaries', 'inferenceProfileId')];
}

// Packages of the provider packages, which only they bring.
const AWS_PACKAGE: string = 'aws4fetch';
const GOOGLE_PACKAGE: string = 'google-auth-library';

type AwsClientClass = new (settings: object) => {
  sign(url: string, init: { readonly method: string }): Promise<{ readonly headers: Headers }>;
};
type GoogleAuthClass = new (options: object) => { getAccessToken(): Promise<string | null> };

async function vertexModels(
  { settings }: ProviderSettings,
  publisher: string,
  signal: AbortSignal,
): Promise<string[]> {
  const publishers: Readonly<Record<string, string>> = { google: 'google', anthropic: 'anthropic' };
  // A key of the express mode cannot list models.
  if (publishers[publisher] === undefined || settings['apiKey'] !== undefined) {
    throw new ProviderFailure(404, 'The provider has no list of models');
  }
  const location = textOf(settings['location']) ?? 'global';
  const host = location === 'global' ? 'aiplatform' : `${location}-aiplatform`;
  const base = textOf(settings['baseURL']) ?? `https://${host}.googleapis.com`;
  const url = new URL(`/v1beta1/publishers/${publishers[publisher]}/models?pageSize=1000`, base);
  const { GoogleAuth } = (await import(GOOGLE_PACKAGE)) as { GoogleAuth: GoogleAuthClass };
  const options = settings['googleAuthOptions'];
  const auth = new GoogleAuth({
    scopes: ['https://www.googleapis.com/auth/cloud-platform'],
    ...(isJsonObject(options) ? options : {}),
  });
  const headers = {
    authorization: `Bearer ${(await auth.getAccessToken()) ?? ''}`,
    'x-goog-user-project': textOf(settings['project']) ?? '',
  };
  const names = idsIn(await fetchJson(url, headers, signal), 'publisherModels', 'name');
  return names.map((name) => name.replace(/^publishers\/[^/]+\/models\//, ''));
}

async function fetchJson(
  url: URL,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<unknown> {
  const response = await fetch(url, { headers, signal, redirect: 'error' });
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MAX_LIST_BYTES) throw new ProviderFailure(502, 'The list of models is too long');
    chunks.push(chunk);
  }
  if (!response.ok) {
    throw new ProviderFailure(
      response.status,
      `The list of models returned HTTP ${response.status}`,
    );
  }
  return parsedJson(Buffer.concat(chunks).toString('utf8'));
}

function idsIn(body: unknown, list: string, id: string): string[] {
  const items: unknown = isJsonObject(body) ? body[list] : body;
  if (!Array.isArray(items)) throw new ProviderFailure(502, 'The provider sent no list of models');
  return items.flatMap((item: unknown) => (isJsonObject(item) ? (textOf(item[id]) ?? []) : []));
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The list in the format of the OpenAI API. */
export function modelListBody(ids: readonly string[]): JsonObject {
  return { object: 'list', data: ids.map((id) => ({ id, object: 'model' })) };
}
