/** The way to a file: mirror or host, headers, and proxy. */
import { type Dispatcher, EnvHttpProxyAgent } from 'undici';
import type { DownloadSettings } from '../../config/config.ts';

const HUGGING_FACE = 'https://huggingface.co';

/** The address of a model file, or of its copy on the mirror. */
export function modelUrl(url: string, { modelMirror, modelHub }: DownloadSettings): string {
  const { origin, pathname, search } = new URL(url);
  const base = modelMirror ?? (origin === HUGGING_FACE ? modelHub : undefined) ?? origin;
  return `${base}${pathname}${search}`;
}

/** The address of the tarball of a package, and what the registry wants to be sent. */
export function tarballOf(
  { name, version }: { readonly name: string; readonly version: string },
  { registry, registryToken }: DownloadSettings,
): { readonly url: string; readonly headers: Readonly<Record<string, string>> } {
  const file = name.slice(name.indexOf('/') + 1);
  return {
    url: `${registry}/${name}/-/${file}-${version}.tgz`,
    headers: registryToken === undefined ? {} : { authorization: `Bearer ${registryToken}` },
  };
}

/** Lends the proxy, where there is one, for as long as `work` runs. */
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
