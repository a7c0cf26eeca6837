/**
 * Opens accounts for wallets that got credit from an older version, which opened none, so that the list of
 * accounts is complete. Runs once for a database.
 */
import { walletAccounts } from '../billing/ledger/ledger.ts';
import { type Store, claimOnce } from '../db/db.ts';
import type { Identity } from '../identity/identity.ts';

const ACCOUNTS_A_PAGE = 500;

export interface WalletAccountParts {
  readonly store: Store;
  readonly identity: Pick<Identity, 'openWalletAccount'>;
}

/** Opens an account for every wallet of the ledger, in one transaction. */
export async function openWalletAccounts({ store, identity }: WalletAccountParts): Promise<void> {
  await store.transaction(async (tx) => {
    if (!(await claimOnce(tx, 'wallet accounts', 0))) return;
    for (let after = ''; ;) {
      const page = await walletAccounts(tx, { after, limit: ACCOUNTS_A_PAGE });
      for (const { wallet, createdMs } of page) {
        await identity.openWalletAccount(wallet, tx, createdMs);
      }
      const last = page.at(-1);
      if (last === undefined || page.length < ACCOUNTS_A_PAGE) return;
      after = last.id;
    }
  });
}
