/**
 * Opens the rails of the configuration and the external facilitator, where one is named. The chain
 * libraries are large; they are loaded only for rails that are configured.
 */
import type { HTTPFacilitatorClient } from '@x402/core/server';
import { SECOND_MS } from '../core/clock.ts';
import type { EvmRail } from './evm/evm-rail.ts';
import { nanoToUnits } from './networks.ts';
import type { Rail, RailOptions } from './rail.ts';
import { type PaymentSettings, readAmounts } from './settings.ts';

export interface OpenedRails {
  readonly rails: ReadonlyMap<string, Rail>;
  readonly evm: EvmRail | undefined;
  /** `undefined` where the embedded one settles. */
  readonly external: HTTPFacilitatorClient | undefined;
}

export interface OpenRailsOptions extends Pick<RailOptions, 'store' | 'clock' | 'log' | 'pollMs'> {
  readonly settings: PaymentSettings;
}

/** Rejects when an external facilitator that must name the Solana fee payer does not answer. */
export async function openRails(options: OpenRailsOptions): Promise<OpenedRails> {
  const { settings, store, clock, log, pollMs } = options;
  const { minimumTopUp, maximumTopUp } = readAmounts(settings);
  const external = await openExternal(settings);
  const railOptions: RailOptions = {
    store,
    clock,
    log,
    pollMs,
    limits: {
      minimumUnits: nanoToUnits(minimumTopUp),
      maximumUnits: nanoToUnits(maximumTopUp),
    },
    maxTimeoutSeconds: settings.maxTimeoutSeconds,
    settleWaitMs: settings.settleWaitSeconds * SECOND_MS,
    external,
  };
  const rails = new Map<string, Rail>();
  let evm: EvmRail | undefined;
  if (settings.base !== undefined) {
    const { EvmRail } = await import('./evm/evm-rail.ts');
    evm = new EvmRail(settings.base, railOptions);
    rails.set(evm.network, evm);
  }
  if (settings.solana !== undefined) {
    const { openSolanaRail } = await import('./solana/solana-rail.ts');
    const solana = await openSolanaRail(settings.solana, railOptions);
    rails.set(solana.network, solana);
  }
  return { rails, evm, external };
}

async function openExternal(settings: PaymentSettings): Promise<HTTPFacilitatorClient | undefined> {
  const { url, authorization, timeoutSeconds } = settings.facilitator;
  if (url === undefined) return undefined;
  const { HTTPFacilitatorClient: Client } = await import('@x402/core/server');
  const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
  return new Client({
    url,
    timeoutMs: timeoutSeconds * SECOND_MS,
    createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
  });
}
