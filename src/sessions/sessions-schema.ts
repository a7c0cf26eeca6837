/** Schemas and OpenAPI descriptions of the session routes. */
import { z } from 'zod';
import { type RouteDescription, jsonResponse, jsonContent, listOf } from '../http/describe.ts';
import { PLANS } from '../identity/identity.ts';

const Time = z.string().describe('ISO 8601, UTC.');
const KIND = z.enum(['key', 'wallet']).describe('Credential of the sign-in.');

export type SessionItem = z.infer<typeof SessionItem>;
export const SessionItem = z
  .object({
    id: z.string().describe('Id of the session; not a secret.'),
    kind: KIND.describe('Credential of the sign-in; a link of the operator counts as a key.'),
    accountId: z.string().describe('Account that pays.'),
    keyId: z.string().nullable().describe('API key of the session, or null.'),
    keyKind: z
      .enum(['INFERENCE', 'ADMIN'])
      .describe('Kind of the key; `ADMIN` may manage keys, a wallet is `INFERENCE`.'),
    keyDescription: z.string().nullable().describe('Description of the key, or null.'),
    wallet: z.string().nullable().describe('Wallet address of the session, or null.'),
    plan: z.enum(PLANS).describe('Plan of the account.'),
    isOperator: z.boolean().describe('Whether the session may use the routes under `/admin`.'),
    csrfToken: z.string().describe('Required in the header `X-CSRF-Token` of writing requests.'),
    createdAt: Time,
    expiresAt: Time,
  })
  .meta({ id: 'ConsoleSession' });

const Challenge = z
  .object({
    info: z
      .object({
        domain: z.string().describe('Domain that requests the sign-in.'),
        uri: z.string().describe('URI that the sign-in is for.'),
        version: z.string().describe('Version of the message format.'),
        nonce: z.string().describe('Nonce for a single use.'),
        issuedAt: Time,
        expirationTime: Time,
        statement: z.string().describe('Statement that the wallet shows to its owner.'),
      })
      .describe('Fields of the EIP-4361 message.'),
    supportedChains: z
      .array(
        z.object({
          chainId: z.string().describe('CAIP-2 id of the chain.'),
          type: z.string().describe('Signature type.'),
        }),
      )
      .describe('Supported chains.'),
  })
  .describe('Message that a wallet signs for the header `SIGN-IN-WITH-X`.');

export type ConsoleResponse = z.infer<typeof ConsoleResponse>;
export const ConsoleResponse = z
  .object({
    object: z.literal('console').describe('Kind of the object.'),
    service: z
      .object({
        name: z.string().describe('Short name, used in headers.'),
        title: z.string().describe('Display name.'),
      })
      .describe('Names of the service.'),
    publicUrl: z.string().describe('Public origin of the service.'),
    session: SessionItem.nullable().describe('The session, or null if not signed in.'),
    wallet: Challenge.nullable().describe(
      'Sign-in message for wallets; null without wallet payments.',
    ),
  })
  .meta({ id: 'Console' });

export const SessionResponse = z.object({ session: SessionItem });

export const LinkRequest = z
  .object({ token: z.string().min(1).max(200).describe('Token after `#` in the link.') })
  .meta({ id: 'SignInLinkRequest' });

export type SessionListResponse = z.infer<typeof SessionListResponse>;
export const SessionListResponse = listOf(
  z.object({
    id: z.string().describe('Id of the session; not a secret.'),
    kind: KIND.describe('Credential of the sign-in.'),
    keyId: z.string().nullable().describe('API key of the session, or null.'),
    wallet: z.string().nullable().describe('Wallet address of the session, or null.'),
    isCurrent: z.boolean().describe('Whether the request belongs to this session.'),
    createdAt: Time,
    lastUsedAt: Time.describe('ISO 8601, UTC; up to a minute old.'),
    expiresAt: Time,
    userAgent: z.string().describe('User agent of the browser at sign-in.'),
    address: z.string().describe('Network address at sign-in.'),
  }),
  'Sessions, newest first.',
);

const EndedResponse = z.object({ success: z.literal(true).describe('Always true.') });

const ID = 'session_019aa3f1c0de4b7e8c1d2e3f';
const SESSION: SessionItem = {
  id: ID,
  kind: 'key',
  accountId: 'acct_019aa3f1c0de',
  keyId: 'key_019aa3f1c0de',
  keyKind: 'ADMIN',
  keyDescription: 'first key',
  wallet: null,
  plan: 'staff',
  isOperator: true,
  csrfToken: '5f3e…',
  createdAt: '2026-11-21T04:00:00.000Z',
  expiresAt: '2026-11-28T04:00:00.000Z',
};

export const CONSOLE: RouteDescription = {
  tag: 'Console',
  summary: 'Get the current session',
  about: 'Returns 200 also if not signed in. The cookie of an ended session is cleared.',
  response: jsonResponse(
    'The session of the cookie, and the data for a sign-in.',
    ConsoleResponse,
    {
      object: 'console',
      service: { name: 'svc', title: 'Farebox' },
      publicUrl: 'https://api.example.com',
      session: SESSION,
      wallet: null,
    },
    'session',
    'no-store',
  ),
};

const SIGNED_IN = jsonResponse(
  'The session; only the cookie contains its secret.',
  SessionResponse,
  { session: SESSION },
  'session',
  'no-store',
);

export const SIGN_IN: RouteDescription = {
  tag: 'Console',
  summary: 'Sign in',
  about:
    'Exchanges an API key (`Authorization: Bearer`) or a wallet signature (`SIGN-IN-WITH-X`) for a session. A session lasts seven days and ends with its key; it replaces an earlier session of the browser.',
  response: SIGNED_IN,
};

export const LINK: RouteDescription = {
  tag: 'Console',
  summary: 'Sign in by a link',
  about:
    'Exchanges the link that the terminal printed for a session. A link is valid once, for 15 minutes.',
  request: jsonContent(LinkRequest, { token: 'q3Jz0hXw7cM5b1uYk9eTnVfR2sAoLdP6iGxZ8mKtWQE' }),
  response: SIGNED_IN,
  refusals: [
    'AUTHENTICATION_FAILED',
    'API_ACCESS_DISABLED',
    'RATE_LIMIT_EXCEEDED',
    'CSRF_CHECK_FAILED',
  ],
};

export const SIGN_OUT: RouteDescription = {
  tag: 'Console',
  summary: 'Sign out',
  about: 'Ends the session at once for every copy of its cookie.',
  response: jsonResponse('The session has ended.', EndedResponse, { success: true }, 'session'),
  refusals: ['SESSION_NOT_FOUND'],
};

export const LIST_SESSIONS: RouteDescription = {
  tag: 'Console',
  summary: 'List sessions',
  about: 'Lists the sessions of the key or wallet; an ADMIN key lists all sessions of its account.',
  response: jsonResponse('Active sessions, newest first.', SessionListResponse, {
    object: 'list',
    data: [
      {
        id: ID,
        kind: 'key',
        keyId: 'key_019aa3f1c0de',
        wallet: null,
        isCurrent: true,
        createdAt: '2026-11-21T04:00:00.000Z',
        lastUsedAt: '2026-11-21T04:10:00.000Z',
        expiresAt: '2026-11-28T04:00:00.000Z',
        userAgent: 'Mozilla/5.0',
        address: '203.0.113.7',
      },
    ],
  }),
};

export const END_SESSION: RouteDescription = {
  tag: 'Console',
  summary: 'End a session',
  parameters: [{ name: 'id', in: 'path', about: 'Id of the session.', example: ID }],
  response: jsonResponse('The session has ended.', EndedResponse, { success: true }),
  refusals: ['SESSION_NOT_FOUND'],
};
