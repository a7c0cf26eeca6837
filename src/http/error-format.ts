/** Chooses the format of an error response: the standard one, or the error object of OpenAI. */

interface Asking {
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** `undefined` for an unknown path. */
  readonly route?: { readonly path: string } | undefined;
}

/** Routes of the OpenAI protocol. */
export const OPENAI_PATHS: ReadonlySet<string> = new Set([
  '/audio/speech',
  '/audio/transcriptions',
  '/audio/translations',
  '/batches',
  '/batches/:id',
  '/batches/:id/cancel',
  '/chat/completions',
  '/completions',
  '/embeddings',
  '/files',
  '/files/:id',
  '/files/:id/content',
  '/images/edits',
  '/images/generations',
  '/models',
  '/models/:id',
  '/models/:vendor/:id',
  '/moderations',
]);

/**
 * SDKs that read only the error object of OpenAI: those with `openai` in their name, and the AI
 * SDK. Crawlers mention the domain `openai.com`.
 */
const SDK_AGENT = /openai(?!\.com)|\bai-sdk\//i;
/** Sent by the SDKs of Stainless, also in browsers, where the agent is the browser. */
const SDK_HEADER = 'x-stainless-lang';

export interface ErrorFormats {
  /** The request header that chooses the format. */
  readonly header: string;
  readonly serviceName: string;
}

/** Whether the client gets the error object of OpenAI: by the header, else by the SDK. */
export function wantsOpenAi({ headers, route }: Asking, formats: ErrorFormats): boolean {
  const requested = headers[formats.header];
  if (requested === 'openai') return true;
  if (requested === 'svc' || requested === formats.serviceName || !isOpenAiPath(route))
    return false;
  return headers[SDK_HEADER] !== undefined || SDK_AGENT.test(headers['user-agent'] ?? '');
}

/** The request headers that the format depends on, for `Vary`. */
export function errorVary({ route }: Asking, { header }: ErrorFormats): string {
  return isOpenAiPath(route) ? `${header}, User-Agent, ${SDK_HEADER}` : header;
}

/** Unknown paths included: usually an SDK with a wrong base URL. */
function isOpenAiPath(route: Asking['route']): boolean {
  return route === undefined || OPENAI_PATHS.has(route.path);
}
