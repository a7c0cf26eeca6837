/** `farebox signing-keys`: lists the keys that offers and receipts are signed with, and makes a new one. */
import {
  type PublishedKey,
  listSigningKeys,
  PUBLISHED_BEFORE_MS,
  rotateSigningKey,
} from '../payments/payments.ts';
import { MINUTE_MS, isoTimeOrNull } from '../core/clock.ts';
import { type Cli, shownTime } from './command.ts';
import { table } from './terminal.ts';

const PUBLISHED_MINUTES = PUBLISHED_BEFORE_MS / MINUTE_MS;

export function signingKeysCommands(cli: Cli): void {
  const signingKeys = cli.group('signing-keys');
  signingKeys
    .command('list')
    .description(`List the keys of offers and receipts

All of them are published at /.well-known/did.json, so that what an old one signed can be verified.`)
    .action(() =>
      cli.withStores(async ({ config, stores, clock }) => {
        const { signingKey } = config.payments;
        const keys = await listSigningKeys(stores.store, clock.nowMs(), signingKey);
        cli.print(
          keys.map(jsonOf),
          table(
            ['KEY', 'EIP-712 ADDRESS', 'MADE', 'SIGNS'],
            keys.map((key) => [
              key.identifier,
              key.address,
              shownTime(key.createdMs),
              key.isCurrent ? 'yes' : 'no',
            ]),
          ),
        );
      }),
    );
  signingKeys
    .command('rotate')
    .description(`Make a new key for offers and receipts

A running server publishes the new key within a minute and signs with it ${PUBLISHED_MINUTES} minutes after it was made.
The old key stays published, and signs nothing more. Where payments.signingKey is set, the key is
changed there.`)
    .action(() =>
      cli.withStores(async ({ config, stores, clock }) => {
        if (config.payments.signingKey !== undefined) {
          throw new Error(
            'The key that signs is the setting payments.signingKey: write another there, and restart',
          );
        }
        const key = await rotateSigningKey(stores.store, clock.nowMs());
        cli.print(
          jsonOf(key),
          `${key.identifier} (EIP-712: ${key.address}) signs in ${PUBLISHED_MINUTES} minutes; the keys before it stay published\n`,
        );
      }),
    );
}

function jsonOf({ identifier, address, createdMs, isCurrent }: PublishedKey) {
  return { identifier, address, createdAt: isoTimeOrNull(createdMs), signs: isCurrent };
}
