/** Migrations of all folders, in the order of their execution. */
import { IDEMPOTENCY_MIGRATIONS } from '../billing/idempotency/idempotency.ts';
import { IDENTITY_MIGRATIONS } from '../identity/identity.ts';
import { LEDGER_MIGRATIONS } from '../billing/ledger/ledger.ts';
import { LIMITS_MIGRATIONS } from '../billing/limits/limits.ts';
import { PAYMENTS_MIGRATIONS } from '../payments/payments.ts';
import { OBSERVABILITY_MIGRATIONS } from '../observability/failure-log.ts';
import { type Migration, STORE_MIGRATIONS } from '../db/db.ts';
import { AGENTS_MIGRATIONS, RESPONSES_MIGRATIONS } from '../chat/chat.ts';
import { RPC_MIGRATIONS } from '../rpc/rpc.ts';
import { BATCHES_MIGRATIONS } from '../batches/batches.ts';
import { VIDEO_MIGRATIONS } from '../video/migrations.ts';
import { BACKUP_MIGRATIONS } from './backup/migrations.ts';
import { WEBHOOKS_MIGRATIONS } from '../webhooks/webhooks.ts';

export const MIGRATIONS: readonly Migration[] = [
  ...STORE_MIGRATIONS,
  ...LEDGER_MIGRATIONS,
  ...IDENTITY_MIGRATIONS,
  ...LIMITS_MIGRATIONS,
  ...IDEMPOTENCY_MIGRATIONS,
  ...RPC_MIGRATIONS,
  ...VIDEO_MIGRATIONS,
  ...PAYMENTS_MIGRATIONS,
  ...AGENTS_MIGRATIONS,
  ...RESPONSES_MIGRATIONS,
  ...BATCHES_MIGRATIONS,
  ...WEBHOOKS_MIGRATIONS,
  ...BACKUP_MIGRATIONS,
  ...OBSERVABILITY_MIGRATIONS,
];
