/**
 * Sources and proxies of downloaded packages and models. Settings take precedence over the environment, and
 * the environment over the user's `.npmrc`.
 */
import { join } from 'node:path';
import { environmentProxies, type ProxySettings } from './outgoing-proxy.ts';
import type { Environment } from './yaml-source.ts';

export interface DownloadSettings extends ProxySettings {
  /** URL of the npm registry, without a trailing slash. */
  readonly registry: string;
  /** Bearer token for that registry. */
  readonly registryToken: string | undefined;
  /** Base URL that replaces the host of every model. */
  readonly modelMirror: string | undefined;
  /** Base URL that replaces Hugging Face. */
  readonly modelHub: string | undefined;
}

const PUBLIC_REGISTRY = 'https://registry.npmjs.org';

interface Given {
  readonly registry?: string | undefined;
  readonly modelMirror?: string | undefined;
  readonly proxy?: string | undefined;
}

/** Reads the `.npmrc` of the user, if it exists. */
export async function downloadSettings(
  given: Given,
  env: Environment,
  readText: (path: string) => Promise<string | undefined>,
): Promise<DownloadSettings> {
  const home = env['HOME'] ?? env['USERPROFILE'];
  const npm = npmSettings(home && (await readText(join(home, '.npmrc'))), env);
  const registry = withoutSlash(
    given.registry ?? env['npm_config_registry'] ?? npm.get('registry') ?? PUBLIC_REGISTRY,
  );
  const { httpProxy, httpsProxy, noProxy } = environmentProxies(env);
  const { host, pathname } = URL.parse(registry) ?? { host: '', pathname: '' };
  return {
    registry,
    registryToken: npm.get(`//${host}${withoutSlash(pathname)}/:_authToken`),
    modelMirror: given.modelMirror && withoutSlash(given.modelMirror),
    modelHub: env['HF_ENDPOINT'] && withoutSlash(env['HF_ENDPOINT']),
    httpProxy: given.proxy ?? httpProxy ?? npm.get('proxy'),
    httpsProxy: given.proxy ?? httpsProxy ?? npm.get('https-proxy'),
    noProxy: given.proxy === undefined ? noProxy : undefined,
  };
}

/** Parses `key=value` lines and replaces `${NAME}`. */
function npmSettings(text: string | undefined, env: Environment): ReadonlyMap<string, string> {
  const lines = (text ?? '').split(/\r?\n/).flatMap((line) => {
    const [, key, value] = /^\s*([^#;=\s][^=]*?)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (key === undefined || value === undefined || value === 'null') return [];
    const filled = value.replaceAll(/\$\{(\w+)\}/g, (_, name: string) => env[name] ?? '');
    return [[key, filled] as const];
  });
  return new Map(lines);
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
