/**
 * The tables of payments: top-ups by signed authorization, used sign-in nonces, the next nonce and the
 * recent transactions of each gas key, refunds, shared secrets, the request that opened each payment, and
 * payments by card with their events and refunds, and saved cards.
 *
 * A credited top-up is never deleted: its row prevents a second credit for the same authorization, which
 * stays public on the chain.
 */
import type { Migration } from '../db/db.ts';

export const PAYMENTS_MIGRATIONS: readonly Migration[] = [
  {
    id: 'payments-0001',
    up: `
      CREATE TABLE payments_topup (
        payment_key TEXT PRIMARY KEY,
        payment_id TEXT NOT NULL,
        network TEXT NOT NULL,
        wallet TEXT NOT NULL,
        amount_units BIGINT NOT NULL,
        payload TEXT NOT NULL,
        payload_hash TEXT NOT NULL,
        identifier TEXT,
        state TEXT NOT NULL,
        tx_id TEXT,
        raw_tx TEXT,
        start_height BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        failure TEXT,
        settlement TEXT,
        new_balance_nano BIGINT,
        lease_owner TEXT,
        lease_until_ms BIGINT NOT NULL,
        next_check_ms BIGINT NOT NULL,
        attempts BIGINT NOT NULL,
        created_ms BIGINT NOT NULL,
        updated_ms BIGINT NOT NULL
      );
      CREATE UNIQUE INDEX payments_topup_identifier ON payments_topup (wallet, identifier);
      CREATE INDEX payments_topup_due ON payments_topup (state, next_check_ms);
      CREATE TABLE payments_nonce (
        wallet TEXT NOT NULL,
        nonce TEXT NOT NULL,
        expires_ms BIGINT NOT NULL,
        PRIMARY KEY (wallet, nonce)
      );
      CREATE INDEX payments_nonce_expiry ON payments_nonce (expires_ms);
      CREATE TABLE payments_gas_nonce (
        gas_key TEXT PRIMARY KEY,
        next_nonce BIGINT NOT NULL,
        updated_ms BIGINT NOT NULL
      );
      CREATE TABLE payments_secret (
        name TEXT PRIMARY KEY,
        secret TEXT NOT NULL
      );
      CREATE TABLE payments_refund (
        refund_id TEXT PRIMARY KEY,
        network TEXT NOT NULL,
        wallet TEXT NOT NULL,
        amount_units BIGINT NOT NULL,
        state TEXT NOT NULL,
        authorization_text TEXT NOT NULL,
        tx_id TEXT,
        raw_tx TEXT,
        start_height BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        failure TEXT,
        lease_owner TEXT,
        lease_until_ms BIGINT NOT NULL,
        next_check_ms BIGINT NOT NULL,
        created_ms BIGINT NOT NULL,
        updated_ms BIGINT NOT NULL
      );
      CREATE INDEX payments_refund_due ON payments_refund (state, next_check_ms);`,
  },
  {
    id: 'payments-0002',
    up: `
      CREATE TABLE payments_gas_transaction (
        gas_key TEXT NOT NULL,
        number BIGINT NOT NULL,
        raw_tx TEXT NOT NULL,
        sent_ms BIGINT NOT NULL,
        PRIMARY KEY (gas_key, number)
      );
      CREATE INDEX payments_gas_transaction_age ON payments_gas_transaction (sent_ms);`,
  },
  {
    // The offer of a payment (older rows: see `underItsOffer`), and the watch of credits until they are
    // final. Credits of the last hour are watched too; older ones are final on every supported chain.
    id: 'payments-0003',
    up: `
      ALTER TABLE payments_topup ADD COLUMN offer TEXT;
      ALTER TABLE payments_topup ADD COLUMN start_block TEXT;
      ALTER TABLE payments_topup ADD COLUMN credited_height BIGINT NOT NULL DEFAULT 0;
      ALTER TABLE payments_topup ADD COLUMN is_watched BIGINT NOT NULL DEFAULT 0;
      ALTER TABLE payments_topup ADD COLUMN vanished_ms BIGINT;
      ALTER TABLE payments_topup ADD COLUMN reversals BIGINT NOT NULL DEFAULT 0;
      UPDATE payments_topup SET is_watched = 1 WHERE state = 'credited'
        AND updated_ms > (SELECT max(updated_ms) FROM payments_topup) - 3600000;
      CREATE INDEX payments_topup_watched ON payments_topup (next_check_ms) WHERE is_watched = 1;
      CREATE INDEX payments_topup_reversed ON payments_topup (payment_key) WHERE reversals > 0;
      ALTER TABLE payments_refund ADD COLUMN is_watched BIGINT NOT NULL DEFAULT 0;
      CREATE INDEX payments_refund_watched ON payments_refund (next_check_ms) WHERE is_watched = 1;`,
  },
  {
    id: 'payments-0004',
    up: `
      CREATE TABLE payments_wallet_token (
        id TEXT PRIMARY KEY,
        wallet TEXT NOT NULL,
        created_ms BIGINT NOT NULL,
        expires_ms BIGINT NOT NULL,
        usd_limit_nano BIGINT,
        diem_limit_nano BIGINT
      );
      CREATE INDEX payments_wallet_token_wallet ON payments_wallet_token (wallet, expires_ms);
      CREATE INDEX payments_wallet_token_end ON payments_wallet_token (expires_ms);`,
  },
  {
    id: 'payments-0005',
    up: `
      CREATE TABLE payments_pass (
        payment_key TEXT PRIMARY KEY,
        key_hash TEXT,
        used BIGINT NOT NULL,
        created_ms BIGINT NOT NULL
      );
      CREATE INDEX payments_pass_created ON payments_pass (created_ms);`,
  },
  {
    id: 'payments-0006',
    up: `
      CREATE INDEX payments_topup_created ON payments_topup (created_ms, payment_id);
      CREATE INDEX payments_topup_id ON payments_topup (payment_id);`,
  },
  {
    id: 'payments-0007',
    up: `
      CREATE TABLE payments_signing_key (
        identifier TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        private_key TEXT,
        created_ms BIGINT NOT NULL
      );`,
  },
  {
    // The watch of failed payments until the blocks that rejected them are final, also for failures of
    // the last hour; older ones are final on every supported chain.
    id: 'payments-0008',
    up: `
      UPDATE payments_topup SET is_watched = 1, attempts = 0, next_check_ms = 0
      WHERE state = 'failed'
        AND updated_ms > (SELECT max(updated_ms) FROM payments_topup) - 3600000;`,
  },
  {
    id: 'payments-0009',
    up: `
      CREATE TABLE payments_card (
        id TEXT PRIMARY KEY,
        provider TEXT NOT NULL,
        kind TEXT NOT NULL,
        account_id TEXT NOT NULL,
        state TEXT NOT NULL,
        amount_nano BIGINT NOT NULL,
        saves_card BIGINT NOT NULL,
        reference TEXT,
        intent TEXT,
        paid_nano BIGINT NOT NULL DEFAULT 0,
        returned_nano BIGINT NOT NULL DEFAULT 0,
        credited_nano BIGINT NOT NULL DEFAULT 0,
        refunded_nano BIGINT NOT NULL DEFAULT 0,
        postings BIGINT NOT NULL DEFAULT 0,
        version BIGINT NOT NULL DEFAULT 0,
        receipt_url TEXT,
        failure TEXT,
        lease_owner TEXT NOT NULL DEFAULT '',
        lease_until_ms BIGINT NOT NULL DEFAULT 0,
        due_ms BIGINT NOT NULL,
        attempts BIGINT NOT NULL DEFAULT 0,
        created_ms BIGINT NOT NULL,
        updated_ms BIGINT NOT NULL
      );
      CREATE INDEX payments_card_due ON payments_card (due_ms) WHERE due_ms > 0;
      CREATE INDEX payments_card_account ON payments_card (account_id, created_ms, id);
      CREATE UNIQUE INDEX payments_card_intent ON payments_card (provider, intent);
      CREATE TABLE payments_card_event (
        id TEXT PRIMARY KEY,
        payment_id TEXT NOT NULL,
        type TEXT NOT NULL,
        created_ms BIGINT NOT NULL,
        received_ms BIGINT NOT NULL
      );
      CREATE INDEX payments_card_event_age ON payments_card_event (received_ms);
      CREATE TABLE payments_card_refund (
        id TEXT PRIMARY KEY,
        payment_id TEXT NOT NULL,
        account_id TEXT NOT NULL,
        amount_nano BIGINT NOT NULL,
        state TEXT NOT NULL,
        failure TEXT,
        created_ms BIGINT NOT NULL
      );
      CREATE INDEX payments_card_refund_payment ON payments_card_refund (payment_id);
      CREATE TABLE payments_card_provider (
        provider TEXT PRIMARY KEY,
        events_since_ms BIGINT NOT NULL
      );`,
  },
  {
    id: 'payments-0010',
    up: `
      CREATE TABLE payments_card_owner (
        account_id TEXT PRIMARY KEY,
        provider TEXT NOT NULL,
        customer TEXT NOT NULL,
        method TEXT NOT NULL,
        label TEXT NOT NULL,
        keep_nano BIGINT,
        charge_nano BIGINT,
        monthly_nano BIGINT,
        failures BIGINT NOT NULL DEFAULT 0,
        next_try_ms BIGINT NOT NULL DEFAULT 0,
        is_stopped BIGINT NOT NULL DEFAULT 0,
        problem TEXT
      );
      CREATE UNIQUE INDEX payments_card_automatic ON payments_card (account_id)
        WHERE kind = 'automatic' AND state IN ('open', 'processing');`,
  },
  {
    // Fees of the provider, for the books.
    id: 'payments-0011',
    up: `
      ALTER TABLE payments_card ADD COLUMN fee_nano BIGINT NOT NULL DEFAULT 0;
      ALTER TABLE payments_card ADD COLUMN fee_postings BIGINT NOT NULL DEFAULT 0;`,
  },
  {
    // `amount` is decimal text in the smallest unit of the coin: wei exceed 63 bits.
    id: 'payments-0012',
    up: `
      CREATE TABLE payments_gas (
        tx_id TEXT PRIMARY KEY,
        network TEXT NOT NULL,
        payer TEXT NOT NULL,
        number BIGINT NOT NULL,
        amount TEXT,
        day BIGINT,
        sent_ms BIGINT NOT NULL,
        next_check_ms BIGINT NOT NULL
      );
      CREATE INDEX payments_gas_due ON payments_gas (network, next_check_ms) WHERE amount IS NULL;
      CREATE INDEX payments_gas_day ON payments_gas (day) WHERE amount IS NOT NULL;`,
  },
  {
    // Finds the transactions with one gas nonce.
    id: 'payments-0013',
    up: 'CREATE INDEX payments_gas_number ON payments_gas (payer, number)',
  },
];
