/** `farebox sign-in`: prints a link that opens the console and signs in. */
import type { ApiKey } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import { ACCOUNT, type Cli } from './command.ts';
import { keyPages } from './keys.ts';
import { signInLink } from './server-start.ts';

export function signInCommand(cli: Cli): void {
  cli.program
    .command('sign-in')
    .description(`Print a link that opens the console and signs in

The link works once, within 15 minutes, and needs a running server. It signs in with the newest ADMIN
key of the account. To sign in with another key, paste that key on the sign-in page.`)
    .option(...ACCOUNT)
    .action((options) =>
      cli.withAccount(options, async ({ config, stores, clock, account }) => {
        const key = await newestAdminKey(stores, account.id, clock.nowMs());
        if (key === undefined) {
          throw new Error(
            `The account "${account.name}" has no ADMIN key; create one with "farebox keys create --admin --account ${account.id}"`,
          );
        }
        const secret = await stores.identity.sessions.issueLink(account.id, key.id);
        const link = signInLink(config.publicUrl, secret);
        cli.print(
          { link, accountId: account.id, keyId: key.id },
          `This link signs in to the console as "${account.name}". It works once, within 15 minutes:\n\n  ${link}\n`,
        );
      }),
    );
}

async function newestAdminKey(
  stores: Stores,
  accountId: string,
  nowMs: number,
): Promise<ApiKey | undefined> {
  for await (const keys of keyPages(stores, accountId, false)) {
    const key = keys.find(
      ({ kind, expiresMs }) => kind === 'ADMIN' && (expiresMs === undefined || expiresMs > nowMs),
    );
    if (key !== undefined) return key;
  }
  return undefined;
}
