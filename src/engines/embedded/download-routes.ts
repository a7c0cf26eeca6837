/** Routes of a model download: mirror or original host, and proxy. */
import { type Dispatcher, EnvHttpProxyAgent } from 'undici';
import type { DownloadSettings } from '../../config/config.ts';

const HUGGING_FACE = 'https://huggingface.co';

export function modelUrl(url: string, { modelMirror, modelHub }: DownloadSettings): string {
  const { origin, pathname, search } = new URL(url);
  const base = modelMirror ?? (origin === HUGGING_FACE ? modelHub : undefined) ?? origin;
  return `${base}${pathname}${search}`;
}

/** Runs `work` with the configured proxy, if any, and closes the proxy afterwards. */
export async function throughProxy<T>(
  { httpProxy = '', httpsProxy = '', noProxy = '' }: DownloadSettings,
  work: (dispatcher: Dispatcher | undefined) => Promise<T>,
): Promise<T> {
  if (httpProxy === '' && httpsProxy === '') return await work(undefined);
  const agent = new EnvHttpProxyAgent({ httpProxy, httpsProxy, noProxy });
  try {
    return await work(agent);
  } finally {
    await agent.close();
  }
}
