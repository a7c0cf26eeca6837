/**
 * A configured engine that runs a provider package of the AI SDK. Each has its own process, so that a
 * fault of one package does not affect other engines. The process receives keys by message; it is the
 * only place that has them besides the configuration.
 */
import type { Config, ProxySettings } from '../../config/config.ts';
import { engineLimits } from '../engine-limits.ts';
import type { DescribeEngine, LocalEnginesParts } from './offers.ts';
import { programUrl, providerSet } from './packages.ts';
import type { ProviderSettings } from './program-contract.ts';
import { EngineProcess } from './supervisor.ts';

/** Prompts and media of concurrent requests are in memory. */
const HEAP_MB = 1_024;

export interface ConfiguredProvider {
  readonly id: string;
  readonly settings: Config['engines'][string];
  readonly proxies: ProxySettings;
}

export function providerOffer(
  { config, log, clock, ids }: LocalEnginesParts,
  { id, settings, proxies }: ConfiguredProvider,
): DescribeEngine {
  const { provider = '', providerOptions = {}, apiKey, headers } = settings;
  const packages = providerSet(provider);
  const start: ProviderSettings = {
    provider,
    settings: {
      ...settings.settings,
      ...(apiKey !== undefined && { [keyName(provider)]: apiKey }),
      ...(Object.keys(headers).length > 0 && { headers }),
    },
    providerOptions,
    proxy: settings.proxy ?? proxies.httpsProxy,
  };
  return (onChange) => ({
    id,
    needs: [packages],
    process: new EngineProcess({
      dataFolder: config.dataFolder,
      log,
      clock,
      ids,
      onChange,
      name: id,
      entry: programUrl('providers/main'),
      packages,
      settings: () => start,
      environment: {
        ...proxyEnvironment(proxies, settings.proxy),
        ...(settings.ca !== undefined && { NODE_EXTRA_CA_CERTS: settings.ca }),
      },
      heapMb: HEAP_MB,
    }),
    calls: { protocol: 'openai', ...engineLimits(settings) },
    models: () => [],
  });
}

function keyName(provider: string): string {
  return provider === '@ai-sdk/replicate' ? 'apiToken' : 'apiKey';
}

/** Makes the `fetch` of the process use the proxy. */
function proxyEnvironment(
  { httpProxy, httpsProxy, noProxy }: ProxySettings,
  own: string | undefined,
): Record<string, string> {
  const proxies = { HTTP_PROXY: own ?? httpProxy, HTTPS_PROXY: own ?? httpsProxy };
  const set = Object.entries(proxies).flatMap(([name, url]) =>
    url === undefined ? [] : [[name, url]],
  );
  if (set.length === 0) return {};
  const local = '127.0.0.1,localhost,[::1]';
  const exempt = own === undefined && noProxy !== undefined ? `${noProxy},${local}` : local;
  return { ...Object.fromEntries(set), NO_PROXY: exempt, NODE_USE_ENV_PROXY: '1' };
}
