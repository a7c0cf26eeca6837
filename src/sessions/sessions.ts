/**
 * `/console/session` and `/console/sessions`: sign-in and sign-out in a browser. A sign-in is a
 * request with the credential itself, so it passes the same stages, including the limit on
 * guessing. It always creates a new session.
 */
import { isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { limitRequests } from '../http/limit-requests.ts';
import { MEMBER_RIGHTS, rightsOf } from '../http/member-rights.ts';
import { readBody } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Feature, type Route, get, post, remove } from '../http/route.ts';
import {
  type Caller,
  type ConsoleSession,
  type Identity,
  SESSION_LIFE_MS,
  type SessionOwner,
} from '../identity/identity.ts';
import { providerRoutes } from './provider-sign-in.ts';
import type { SessionsOptions } from './session-parts.ts';
import {
  AccountRequest,
  CHANGE_ACCOUNT,
  CONSOLE,
  type ConsoleResponse,
  END_SESSION,
  LINK,
  LIST_SESSIONS,
  LinkRequest,
  SIGN_IN,
  SIGN_OUT,
  type SessionItem,
  type SessionListResponse,
} from './sessions-schema.ts';

const SESSION_PATH = '/console/session';
/** A token has 256 random bits; the limit only protects the database. */
const LINKS_PER_MINUTE = 10;

export function sessionsFeature(options: SessionsOptions): Feature {
  const { identity } = options;
  return { routes: sessionRoutes(options), leaderJob: () => identity.sessions.prune() };
}

function sessionRoutes(options: SessionsOptions): Route[] {
  const { identity } = options;
  const { sessions } = identity;
  return [
    get(SESSION_PATH, 'public', CONSOLE, (context) => answerConsole(options, context)),
    {
      method: 'POST',
      path: SESSION_PATH,
      auth: 'key-or-wallet',
      describe: SIGN_IN,
      handle: async (context) => {
        const { caller } = context;
        options.cookie().requireSameOrigin(context);
        requireOwnCredential(caller);
        await beginSession(options, context, caller);
      },
    },
    post(`${SESSION_PATH}/link`, 'public', LINK, async (context) => {
      options.cookie().requireSameOrigin(context);
      await limitRequests(options, `sign-in-link|${context.countedAddress}`, LINKS_PER_MINUTE);
      const { token } = readBody(context, LinkRequest);
      await beginSession(options, context, await sessions.takeLink(token));
    }),
    remove(SESSION_PATH, 'key-or-wallet', SIGN_OUT, async (context) => {
      const { session } = context.caller;
      if (session === undefined) throw new Fault('SESSION_NOT_FOUND');
      const ended = await sessions.end(session.accountId, session.keyId, session.id);
      context.set('set-cookie', options.cookie().clear);
      const signOutUrl = ended === undefined ? undefined : await providerEnd(options, ended);
      await context.json(200, { success: true, signOutUrl: signOutUrl ?? null });
    }),
    post(`${SESSION_PATH}/account`, 'key-or-wallet', CHANGE_ACCOUNT, async (context) => {
      const { session, member } = context.caller;
      const { accountId } = readBody(context, AccountRequest);
      const open = member === undefined ? [] : await identity.members.memberships(member);
      const wanted = open.find((one) => one.accountId === accountId);
      if (session === undefined || wanted === undefined) throw new Fault('ACCOUNT_NOT_FOUND');
      await sessions.moveTo(session, wanted);
      const secret = options.cookie().secretIn(context.header('cookie') ?? '') ?? '';
      const moved = await sessions.open(secret);
      context.set('cache-control', 'no-store');
      await context.json(200, { session: await itemOf(options, moved.session, moved.caller) });
    }),
    ...providerRoutes(options, (context, owner) => beginSession(options, context, owner)),
    get('/console/sessions', 'key-or-wallet', LIST_SESSIONS, async (context) => {
      const { accountId, session } = context.caller;
      const open = await sessions.list(accountId, visibleKey(context.caller));
      const data = open.map((one) => listed(one, session?.id));
      await context.json(200, { object: 'list', data } satisfies SessionListResponse);
    }),
    remove('/console/sessions/:id', 'key-or-wallet', END_SESSION, async (context) => {
      const { caller, parameters } = context;
      const ended = await sessions.end(
        caller.accountId,
        visibleKey(caller),
        parameters['id'] ?? '',
      );
      if (ended === undefined) throw new Fault('SESSION_NOT_FOUND');
      await context.json(200, { success: true });
    }),
  ];
}

/** Returns the page of the provider that ends its session, which leads back to the sign-in page. */
function providerEnd(
  { config, providers }: SessionsOptions,
  { provider, idToken }: { readonly provider: string; readonly idToken: string },
): Promise<string | undefined> {
  const { publicUrl } = config.current;
  return providers.signOutUrl(provider, idToken, `${publicUrl}/console/sign-in`);
}

/**
 * An ADMIN key and an owner see all sessions of their account, other credentials only their own.
 * Throws 401 for a wallet token, because tokens are shared.
 */
function visibleKey(caller: Caller): string | undefined {
  const { kind, keyKind, keyId, session, isSigned, member } = caller;
  if (kind === 'wallet' && session === undefined && isSigned !== true) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message:
        'A wallet token cannot list or end sessions; send the signature of the wallet in SIGN-IN-WITH-X',
    });
  }
  return keyKind === 'ADMIN' || member?.role === 'owner' ? undefined : keyId;
}

/**
 * Throws 401 for a session or a wallet token: a session could otherwise be extended forever, and a
 * token would escape its limits.
 */
function requireOwnCredential({ kind, session, isSigned }: Caller): void {
  if (session === undefined && (kind === 'key' || isSigned === true)) return;
  throw new Fault('AUTHENTICATION_FAILED', {
    message:
      'A session begins with an API key in "Authorization: Bearer" or with the signature of a wallet in SIGN-IN-WITH-X',
  });
}

/** Replaces the session of the browser. */
async function beginSession(
  options: SessionsOptions,
  context: RequestContext,
  owner: SessionOwner,
): Promise<void> {
  const { identity, cookie } = options;
  const { sessions } = identity;
  const place = { userAgent: context.header('user-agent') ?? '', address: context.address };
  const { secret } = await sessions.begin(owner, place);
  // Reads the session as later requests will, so that a key revoked meanwhile does not sign in.
  const { session, caller } = await sessions.open(secret);
  await endEarlier(options, context);
  context.set('set-cookie', cookie().set(secret, owner.signIn?.lifeMs ?? SESSION_LIFE_MS));
  context.set('cache-control', 'no-store');
  await context.json(200, { session: await itemOf(options, session, caller) });
}

async function endEarlier(options: SessionsOptions, context: RequestContext): Promise<void> {
  const earlier = options.cookie().secretIn(context.header('cookie') ?? '');
  if (earlier !== undefined) await options.identity.sessions.endBySecret(earlier);
}

async function answerConsole(options: SessionsOptions, context: RequestContext): Promise<void> {
  const { config, challenge, cookie } = options;
  const { service, publicUrl } = config.current;
  const caller = context.callerIfKnown;
  const session = caller?.session;
  const hasCookie = cookie().secretIn(context.header('cookie') ?? '') !== undefined;
  // A page of another origin must not sign the user out.
  if (session === undefined && hasCookie && cookie().isSameOrigin(context)) {
    context.set('set-cookie', cookie().clear);
  }
  const body: ConsoleResponse = {
    object: 'console',
    service: { name: service.name, title: service.title },
    publicUrl,
    session: session === undefined ? null : await itemOf(options, session, caller),
    wallet: challenge() ?? null,
    signIn: config.current.signIn.providers.map(({ id, label }) => ({ id, label })),
  };
  context.set('cache-control', 'no-store');
  await context.json(200, body);
}

async function itemOf(
  { identity }: SessionsOptions,
  session: ConsoleSession,
  caller: Caller | undefined,
): Promise<SessionItem> {
  const { accountId, keyId, wallet, csrfToken } = session;
  const key = keyId === '' ? undefined : await identity.findKey(accountId, keyId);
  const member = caller?.member;
  const isManaging = caller?.keyKind === 'ADMIN' || member?.role === 'owner';
  return {
    id: session.id,
    kind: kindOf(session, member),
    accountId,
    keyId: key?.id ?? null,
    keyKind: isManaging ? 'ADMIN' : 'INFERENCE',
    keyDescription: key?.description ?? null,
    wallet: wallet ?? null,
    member: member === undefined ? null : await memberItem(identity, member),
    rights: caller === undefined ? [...MEMBER_RIGHTS] : [...rightsOf(caller)],
    plan: caller?.plan ?? 'paid',
    isOperator: caller?.isOperator === true && caller.keyKind !== 'INFERENCE',
    csrfToken,
    createdAt: isoTime(session.createdMs),
    expiresAt: isoTime(session.expiresMs),
  };
}

function kindOf({ keyId }: ConsoleSession, member: Caller['member'] | string): SessionItem['kind'] {
  if (member !== undefined && member !== '') return 'member';
  return keyId === '' ? 'wallet' : 'key';
}

async function memberItem(
  { members }: Identity,
  member: NonNullable<Caller['member']>,
): Promise<SessionItem['member']> {
  const open = await members.memberships(member);
  const accounts = open.map(({ accountId, accountName, role }) => ({
    id: accountId,
    name: accountName,
    role,
  }));
  return { ...member, accounts };
}

function listed(
  one: ConsoleSession,
  currentId: string | undefined,
): SessionListResponse['data'][0] {
  return {
    id: one.id,
    kind: kindOf(one, one.email),
    keyId: one.keyId === '' || one.email !== undefined ? null : one.keyId,
    email: one.email ?? null,
    wallet: one.wallet ?? null,
    isCurrent: one.id === currentId,
    createdAt: isoTime(one.createdMs),
    lastUsedAt: isoTime(one.lastUsedMs),
    expiresAt: isoTime(one.expiresMs),
    userAgent: one.userAgent,
    address: one.address,
  };
}
