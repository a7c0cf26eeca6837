/** `farebox sign-in`: a link that opens the console, signed in, for the person at this machine. */
import type { ApiKey } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import { ACCOUNT, type Cli } from './command.ts';
import { keyPages } from './keys.ts';
import { signInLink } from './server-start.ts';

export function signInCommand(cli: Cli): void {
  cli.program
    .command('sign-in')
    .description(`Print a link that opens the console, signed in

The link works once, within 15 minutes. It signs in as the newest ADMIN key of the account; to sign in
as another key, paste that key on the page. "farebox sign-in" beside a running server is enough.`)
    .option(...ACCOUNT)
    .action((options) =>
      cli.withAccount(options, async ({ config, stores, clock, account }) => {
        const key = await newestAdminKey(stores, account.id, clock.nowMs());
        if (key === undefined) {
          throw new Error(
            `The account "${account.name}" has no ADMIN key; make one with "farebox keys create --admin --account ${account.id}"`,
          );
        }
        const secret = await stores.identity.sessions.issueLink(account.id, key.id);
        const link = signInLink(config.publicUrl, secret);
        cli.print(
          { link, accountId: account.id, keyId: key.id },
          `Opens the console as "${account.name}", once, within 15 minutes:\n\n  ${link}\n`,
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
