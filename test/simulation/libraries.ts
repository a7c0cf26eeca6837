/**
 * State that libraries keep in the process. A run begins without it, so that a seed has the same history
 * alone and after other seeds. Import it after the edges are replaced.
 */
import { createRequire } from 'node:module';
import { resetAssetContractCache } from '@x402/evm';
import { Agent, Dispatcher, setGlobalDispatcher } from 'undici';
import { recoverPublicKey } from 'viem';
// Loaded on demand by the product and by viem: a run does not wait for files.
import '../../src/db/postgres/postgres-store.ts';
import '../../src/payments/cards/stripe.ts';
import '../../src/payments/evm/evm-rail.ts';
import '../../src/payments/solana/solana-rail.ts';
import { replaceMediaPrograms } from './video-studio.ts';
import { type Machine, world } from './world.ts';

/** Requests to Solana have ids from it on, so that all ids are as long. */
const FIRST_ID = 1_000_000;
/** viem draws parts of ids from so many characters; a longer id makes it draw them again. */
const UID_CHARACTERS = 512;

/** The folders of the tests and of the product have packages of their own. */
const FOLDERS = [import.meta.url, new URL('../../package.json', import.meta.url)];

/** A module of viem that it does not export. */
async function viem(path: string): Promise<unknown> {
  return import(new URL(`../../node_modules/viem/_esm/utils/${path}`, import.meta.url).href);
}

interface Cache {
  clear(): void;
}

// The types of the modules are those of their sources.
const { idCache } = (await viem('rpc/id.js')) as { readonly idCache: { reset(): void } };
const { uid } = (await viem('uid.js')) as { readonly uid: (length: number) => string };
const { promiseCache } = (await viem('promise/withDedupe.js')) as { readonly promiseCache: Cache };
const timers = FOLDERS.map(
  (folder) => createRequire(folder)('undici/lib/util/timers.js') as { reset(): void },
);
await viem('ccip.js');
const kit = new URL('../../node_modules/@solana/kit/dist/index.node.mjs', import.meta.url);
const { createRpcMessage } = (await import(kit.href)) as typeof import('@solana/kit');
for (let id = 0; id < FIRST_ID; id += 1) createRpcMessage({ methodName: '', params: [] });
// It imports the curve first, and then rejects.
await recoverPublicKey({ hash: '0x', signature: '0x' }).catch(() => undefined);

/** Connections of `fetch` belong to the machine whose code calls it. */
class MachineDispatcher extends Dispatcher {
  readonly #agents = new WeakMap<Machine, Agent>();

  override dispatch(options: Agent.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const { here } = world();
    let agent = this.#agents.get(here);
    if (agent === undefined) this.#agents.set(here, (agent = new Agent()));
    return agent.dispatch(options, handler);
  }
}

setGlobalDispatcher(new MachineDispatcher());
replaceMediaPrograms();

/** Call it at the begin of a run, in its world. */
export function resetLibraries(): void {
  idCache.reset();
  uid(UID_CHARACTERS + 1);
  promiseCache.clear();
  resetAssetContractCache();
  for (const each of timers) each.reset();
}
