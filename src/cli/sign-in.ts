/** `farebox sign-in`: a link that opens the console, signed in, for whoever sits at this machine. */
import type { ApiKey } from '../identity/identity.ts';
import type { Stores } from '../server/stores.ts';
import { type Command, findAccount, withStores } from './command.ts';
import { keyPages } from './keys.ts';
import { signInLink } from './server-start.ts';

export const signInCommand: Command = {
  name: 'sign-in',
  summary: 'Print a link that opens the console, signed in',
  usage: 'sign-in [--account <account>]',
  details: `
  --account <id or name>   whose console (default: the owner)

The link works once, within 15 minutes. It signs in as the newest ADMIN key of the account; to sign in
as another key, paste that key on the page. "farebox sign-in" beside a running server is enough.`,
  run: (invocation) =>
    withStores(invocation, async ({ config, stores, clock }) => {
      const account = await findAccount(stores, invocation.text('account'));
      const key = await newestAdminKey(stores, account.id, clock.nowMs());
      if (key === undefined) {
        throw new Error(
          `The account "${account.name}" has no ADMIN key; make one with "farebox keys create --admin --account ${account.id}"`,
        );
      }
      const secret = await stores.identity.sessions.issueLink(account.id, key.id);
      const link = signInLink(config.publicUrl, secret);
      invocation.answer(
        () => ({ link, accountId: account.id, keyId: key.id }),
        () => `Opens the console as "${account.name}", once, within 15 minutes:\n\n  ${link}\n`,
      );
    }),
};

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
