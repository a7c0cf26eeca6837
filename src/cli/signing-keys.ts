/** `farebox signing-keys`: lists and rotates the keys that sign offers and receipts. */
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
    .description(`List the keys that sign offers and receipts

The server publishes all keys at /.well-known/did.json, so that signatures of earlier keys can be
verified.`)
    .action(() =>
      cli.withStores(async ({ config, stores, clock }) => {
        const { signingKey } = config.payments;
        const keys = await listSigningKeys(stores.store, clock.nowMs(), signingKey);
        cli.print(
          keys.map(jsonOf),
          table(
            ['KEY', 'EIP-712 ADDRESS', 'CREATED', 'SIGNS'],
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
    .description(`Create a new key that signs offers and receipts

A running server publishes the new key within a minute and signs with it ${PUBLISHED_MINUTES} minutes after its creation.
The earlier keys stay published for verification. If payments.signingKey is set, change the key there
instead.`)
    .action(() =>
      cli.withStores(async ({ config, stores, clock }) => {
        if (config.payments.signingKey !== undefined) {
          throw new Error(
            'The setting payments.signingKey defines the signing key: change it there and restart the server',
          );
        }
        const key = await rotateSigningKey(stores.store, clock.nowMs());
        cli.print(
          jsonOf(key),
          `Created ${key.identifier} (EIP-712: ${key.address}). It signs in ${PUBLISHED_MINUTES} minutes; earlier keys stay published\n`,
        );
      }),
    );
}

function jsonOf({ identifier, address, createdMs, isCurrent }: PublishedKey) {
  return { identifier, address, createdAt: isoTimeOrNull(createdMs), signs: isCurrent };
}
