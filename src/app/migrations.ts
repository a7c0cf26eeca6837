/** The schema of all nouns, in the order in which a new database gets it. */
import { IDENTITY_MIGRATIONS } from '../identity/identity.ts';
import { LEDGER_MIGRATIONS } from '../ledger/ledger.ts';
import { LIMITS_MIGRATIONS } from '../limits/limits.ts';
import { type Migration, STORE_MIGRATIONS } from '../store/store.ts';

export const MIGRATIONS: readonly Migration[] = [
  ...STORE_MIGRATIONS,
  ...LEDGER_MIGRATIONS,
  ...IDENTITY_MIGRATIONS,
  ...LIMITS_MIGRATIONS,
];
