/** The limits of calls to a configured engine. */
import type { Config } from '../config/config.ts';
import type { EngineSettings } from './contract.ts';

export function engineLimits(
  engine: Config['engines'][string],
): Pick<EngineSettings, 'concurrency' | 'maxQueued' | 'maxConnections' | 'timeLimits'> {
  return {
    concurrency: engine.concurrency,
    maxQueued: engine.maxQueued,
    maxConnections: engine.maxConnections,
    timeLimits: {
      connectMs: engine.connectTimeoutMs,
      firstByteMs: engine.firstByteTimeoutMs,
      idleMs: engine.idleTimeoutMs,
      totalMs: engine.totalTimeoutMs,
    },
  };
}
