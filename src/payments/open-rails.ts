/**
 * Opens the rails of the configuration and the external facilitator, where one is named. The chain
 * libraries are large; they are loaded only for rails that are configured.
 */
import type { HTTPFacilitatorClient } from '@x402/core/server';
import { SECOND_MS } from '../core/clock.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import type { EvmRail, RailOptions } from './evm/evm-rail.ts';
import type { ExposedScheme } from './facilitator.ts';
import { nanoToUnits } from './networks.ts';
import type { Rail } from './rail.ts';
import type { Amounts, PaymentSettings } from './settings.ts';

export interface OpenedRails {
  readonly rails: ReadonlyMap<string, Rail>;
  readonly schemes: readonly ExposedScheme[];
  readonly evm: EvmRail | undefined;
  /** `undefined` where the embedded one settles. */
  readonly external: HTTPFacilitatorClient | undefined;
}

export interface OpenRailsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly settings: PaymentSettings;
  readonly amounts: Amounts;
  readonly pollMs: number;
}

/** Rejects when an external facilitator that must name the Solana fee payer does not answer. */
export async function openRails(options: OpenRailsOptions): Promise<OpenedRails> {
  const { settings, amounts } = options;
  const rails = new Map<string, Rail>();
  const schemes: ExposedScheme[] = [];
  let evm: EvmRail | undefined;
  const external = await openExternal(settings);
  const railOptions: RailOptions = {
    store: options.store,
    clock: options.clock,
    log: options.log,
    limits: {
      minimumUnits: nanoToUnits(amounts.minimumTopUp),
      maximumUnits: nanoToUnits(amounts.maximumTopUp),
    },
    maxTimeoutSeconds: settings.maxTimeoutSeconds,
    settleWaitMs: settings.settleWaitSeconds * SECOND_MS,
    pollMs: options.pollMs,
    external,
  };
  if (settings.base !== undefined) {
    const { openEvmRail } = await import('./evm/evm-rail.ts');
    evm = openEvmRail(settings.base, railOptions);
    rails.set(evm.network, evm);
    schemes.push({ network: evm.network, scheme: evm.openScheme() });
  }
  if (settings.solana !== undefined) {
    const { openSolanaRail } = await import('./solana/solana-rail.ts');
    const solana = await openSolanaRail(settings.solana, railOptions);
    rails.set(solana.network, solana);
    schemes.push({ network: solana.network, scheme: solana.openScheme() });
  }
  return { rails, schemes, evm, external };
}

async function openExternal(settings: PaymentSettings): Promise<HTTPFacilitatorClient | undefined> {
  const { url, authorization, timeoutSeconds } = settings.facilitator;
  if (url === undefined) return undefined;
  const { HTTPFacilitatorClient: Client } = await import('@x402/core/server');
  const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
  return new Client({
    url,
    timeoutMs: timeoutSeconds * SECOND_MS,
    createAuthHeaders: async () =>
      await Promise.resolve({ verify: headers, settle: headers, supported: headers }),
  });
}
