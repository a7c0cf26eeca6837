/** Engines of the configuration in the terms of the engines' door, beside the local ones. */
import type { Config, EngineSettings as ConfiguredEngine } from '../config/config.ts';
import type { EngineSettings } from './engines.ts';

export function configuredEngines(config: Config): EngineSettings[] {
  return Object.entries(config.engines).map(([id, engine]) => settingsOf(id, engine));
}

function settingsOf(id: string, engine: ConfiguredEngine): EngineSettings {
  return {
    id,
    protocol: engine.protocol,
    url: baseOf(engine),
    headers: engine.headers,
    concurrency: engine.concurrency,
    maxQueued: engine.maxQueued,
    maxConnections: engine.maxConnections,
    timeLimits: {
      connectMs: engine.connectTimeoutMs,
      firstByteMs: engine.firstByteTimeoutMs,
      idleMs: engine.idleTimeoutMs,
      totalMs: engine.totalTimeoutMs,
    },
    ...(engine.apiKey === undefined ? {} : { apiKey: engine.apiKey }),
  };
}

/** A rembg server is often written with the path of its one call. */
function baseOf({ protocol, url }: ConfiguredEngine): string {
  return protocol === 'rembg' ? url.replace(/\/(?:api\/remove\/?)?$/, '') : url;
}

/** The host name of an engine's address, from which its dialect is guessed. */
export function hostOf(settings: EngineSettings): string {
  return URL.canParse(settings.url) ? new URL(settings.url).hostname : '';
}
