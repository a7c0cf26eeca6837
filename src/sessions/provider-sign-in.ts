/**
 * `/console/sign-in/:provider`: company sign-in. The page of the redirect URI sends the response of the
 * provider here, so that the cookie of the sign-in is never sent by another site.
 */
import { HOUR_MS, MINUTE_MS, isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { limitRequests } from '../http/limit-requests.ts';
import { readBody } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, post } from '../http/route.ts';
import type { SessionOwner } from '../identity/identity.ts';
import type { SessionsOptions } from './session-parts.ts';
import {
  BEGIN_SIGN_IN,
  type BeginResponse,
  COMPLETE_SIGN_IN,
  CompleteRequest,
  InvitationRequest,
  type InvitationResponse,
  SHOW_INVITATION,
} from './sessions-schema.ts';

const PATH = '/console/sign-in/:provider';
/** Time for the sign-in at the provider. */
const SIGN_IN_LIFE_MS = 15 * MINUTE_MS;
const SECRET_BYTES = 32;
/** Each one can call the provider. */
const SIGN_INS_PER_MINUTE = 20;

export function providerRoutes(
  options: SessionsOptions,
  beginSession: (context: RequestContext, owner: SessionOwner) => Promise<void>,
): Route[] {
  const { config, identity, providers, ids, log } = options;
  const redirectUri = (id: string): string =>
    `${config.current.publicUrl}/console/sign-in/${encodeURIComponent(id)}`;
  const admit = async (context: RequestContext, use: string): Promise<void> => {
    options.cookie().requireSameOrigin(context);
    await limitRequests(options, `${use}|${context.countedAddress}`, SIGN_INS_PER_MINUTE);
  };
  return [
    {
      method: 'POST',
      path: PATH,
      auth: 'public',
      describe: BEGIN_SIGN_IN,
      handle: async (context) => {
        await admit(context, 'sign-in-begin');
        const provider = providers.find(context.parameters['provider'] ?? '');
        const secret = ids.bytes(SECRET_BYTES).toString('base64url');
        const url = await providers.begin(provider, redirectUri(provider.id), secret);
        context.set('set-cookie', options.signInCookie().set(secret, SIGN_IN_LIFE_MS));
        context.set('cache-control', 'no-store');
        await context.json(200, { url } satisfies BeginResponse);
      },
    },
    post(`${PATH}/callback`, 'public', COMPLETE_SIGN_IN, async (context) => {
      await admit(context, 'sign-in-callback');
      const provider = providers.find(context.parameters['provider'] ?? '');
      const { query, invitation } = readBody(context, CompleteRequest);
      const url = new URL(redirectUri(provider.id));
      url.search = query;
      const secret = options.signInCookie().secretIn(context.header('cookie') ?? '');
      const person = await providers.complete(provider, url, secret);
      const { openAccount } = options;
      const member = await identity.members.signIn({ person, provider, invitation, openAccount });
      const { accountId, keyId, id, role } = member;
      log.info({ provider: provider.id, account: accountId, member: id, role }, 'Member signed in');
      const lifeMs = config.current.signIn.sessionHours * HOUR_MS;
      const signIn = { provider: provider.id, idToken: person.idToken, lifeMs };
      await beginSession(context, { accountId, keyId, signIn });
    }),
    post('/console/invitation', 'public', SHOW_INVITATION, async (context) => {
      await admit(context, 'invitation');
      const { token } = readBody(context, InvitationRequest);
      const { accountId, role, email, expiresMs } = await identity.members.invitation(token);
      const account = await identity.findAccount(accountId);
      if (account === undefined) throw new Fault('INVITATION_NOT_FOUND');
      const data = {
        accountName: account.name,
        role,
        email: email === '' ? null : email,
        expiresAt: isoTime(expiresMs),
      };
      context.set('cache-control', 'no-store');
      await context.json(200, { data } satisfies InvitationResponse);
    }),
  ];
}
