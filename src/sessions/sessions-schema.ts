/** Schemas and OpenAPI descriptions of the session routes. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse, jsonContent, listOf } from '../http/describe.ts';
import { MEMBER_RIGHTS } from '../http/member-rights.ts';
import { MEMBER_ROLES } from '../config/config.ts';

const Time = z.string().describe('ISO 8601, UTC.');
const KIND = z
  .enum(['key', 'wallet', 'member'])
  .describe('Credential of the sign-in; `member`: a sign-in at a provider.');
const ROLE = z.enum(MEMBER_ROLES).describe('Role in the account.');

export type SessionItem = z.infer<typeof SessionItem>;
export const SessionItem = z
  .object({
    id: z.string().describe('Id of the session; not a secret.'),
    kind: KIND.describe(
      'Credential of the sign-in; a link of the operator counts as a key, a sign-in at a provider as a member.',
    ),
    accountId: z.string().describe('Account that pays.'),
    keyId: z.string().nullable().describe('API key of the session, or null.'),
    keyKind: z
      .enum(['INFERENCE', 'ADMIN'])
      .describe(
        'Kind of the key. An owner counts as `ADMIN`, another member or a wallet as `INFERENCE`.',
      ),
    keyDescription: z.string().nullable().describe('Description of the key, or null.'),
    wallet: z.string().nullable().describe('Wallet address of the session, or null.'),
    member: z
      .object({
        id: z.string().describe('Id of the member.'),
        email: z.string().describe('Email address.'),
        name: z.string().describe('Name at the provider; can be empty.'),
        role: ROLE,
        accounts: z
          .array(
            z.object({
              id: z.string().describe('Id of the account.'),
              name: z.string().describe('Name of the account.'),
              role: ROLE,
            }),
          )
          .describe('Accounts of the person; `POST /console/session/account` changes to one.'),
      })
      .nullable()
      .describe('The member, or null for a key or wallet.'),
    rights: z
      .array(z.enum(MEMBER_RIGHTS))
      .describe(
        '`use`: requests to models. `develop`: keys and webhooks. `billing`: statement, credit, budgets. `own`: members, and for the operator the service.',
      ),
    plan: z.string().describe('Plan of the account.'),
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
    signIn: z
      .array(
        z.object({
          id: z.string().describe('Id of the provider.'),
          label: z.string().describe('Name for a button.'),
        }),
      )
      .describe('Providers of the company sign-in.'),
  })
  .meta({ id: 'Console' });

export const SessionResponse = z.object({ session: SessionItem });

const Token = z.string().min(1).max(200);

export const LinkRequest = z
  .object({ token: Token.describe('Token after `#` in the link.') })
  .meta({ id: 'SignInLinkRequest' });

export const AccountRequest = z
  .object({ accountId: z.string().min(1).max(200).describe('Account of the same person.') })
  .meta({ id: 'SessionAccountRequest' });

export const CompleteRequest = z
  .object({
    query: z
      .string()
      .min(1)
      .max(8_192)
      .describe('Query that the provider has added to the redirect URI.'),
    invitation: Token.optional().describe('Token of an invitation, to accept it.'),
  })
  .meta({ id: 'ProviderSignInRequest' });

export type BeginResponse = z.infer<typeof BeginResponse>;
const BeginResponse = z.object({
  url: z.string().describe('URL at the provider, to which the browser navigates.'),
});

export const InvitationRequest = z
  .object({ token: Token.describe('Token after `#` in the link.') })
  .meta({ id: 'InvitationRequest' });

export type InvitationResponse = z.infer<typeof InvitationResponse>;
const InvitationResponse = z.object({
  data: z
    .object({
      accountName: z.string().describe('Account that the person joins.'),
      role: ROLE,
      email: z.string().nullable().describe('Only this address can accept; null: any.'),
      expiresAt: Time,
    })
    .describe('The invitation.'),
});

export type SessionListResponse = z.infer<typeof SessionListResponse>;
export const SessionListResponse = listOf(
  z.object({
    id: z.string().describe('Id of the session; not a secret.'),
    kind: KIND.describe('Credential of the sign-in.'),
    keyId: z.string().nullable().describe('API key of the session, or null.'),
    wallet: z.string().nullable().describe('Wallet address of the session, or null.'),
    email: z.string().nullable().describe('Email address of the member, or null.'),
    isCurrent: z.boolean().describe('Whether the request belongs to this session.'),
    createdAt: Time,
    lastUsedAt: Time.describe('ISO 8601, UTC; up to a minute old.'),
    expiresAt: Time,
    userAgent: z.string().describe('User agent of the browser at sign-in.'),
    address: z.string().describe('Network address at sign-in.'),
  }),
  'Sessions, newest first.',
);

const SignedOutResponse = z.object({
  success: z.literal(true).describe('Always true.'),
  signOutUrl: z
    .string()
    .nullable()
    .describe('Page that ends the session at the provider of the sign-in, or null.'),
});

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
  member: null,
  rights: ['use', 'develop', 'billing', 'own'],
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
      signIn: [{ id: 'acme', label: 'Acme' }],
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
  response: jsonResponse(
    'The session has ended.',
    SignedOutResponse,
    { success: true, signOutUrl: null },
    'session',
  ),
  refusals: ['SESSION_NOT_FOUND'],
};

export const CHANGE_ACCOUNT: RouteDescription = {
  tag: 'Console',
  summary: 'Change the account of the session',
  about: 'Continues the session in another account of the same person.',
  request: jsonContent(AccountRequest, { accountId: SESSION.accountId }),
  response: SIGNED_IN,
  refusals: ['ACCOUNT_NOT_FOUND'],
};

const PROVIDER = [
  { name: 'provider', in: 'path', about: 'Id of the provider.', example: 'acme' },
] as const;

export const BEGIN_SIGN_IN: RouteDescription = {
  tag: 'Console',
  summary: 'Begin a sign-in at a provider',
  about:
    'Returns the URL of the authorization request (OpenID Connect, code flow with PKCE), and sets a cookie that the second step needs. The provider redirects to `/console/sign-in/{provider}` of the public origin.',
  parameters: PROVIDER,
  response: jsonResponse(
    'The authorization request.',
    BeginResponse,
    { url: 'https://login.example.com/authorize?client_id=…' },
    'session',
    'no-store',
  ),
  refusals: ['NOT_FOUND', 'AUTHENTICATION_FAILED', 'RATE_LIMIT_EXCEEDED', 'CSRF_CHECK_FAILED'],
};

export const COMPLETE_SIGN_IN: RouteDescription = {
  tag: 'Console',
  summary: 'Complete a sign-in at a provider',
  about:
    'Exchanges the code of the provider for a session. The rules of the provider, or an invitation, decide the account and the role.',
  parameters: PROVIDER,
  request: jsonContent(CompleteRequest, { query: '?code=…&state=…' }),
  response: SIGNED_IN,
  refusals: [
    'NOT_FOUND',
    'AUTHENTICATION_FAILED',
    'API_ACCESS_DISABLED',
    'SIGN_IN_NOT_ALLOWED',
    'INVITATION_NOT_FOUND',
    'MEMBER_LIMIT_REACHED',
    'RATE_LIMIT_EXCEEDED',
    'CSRF_CHECK_FAILED',
  ],
};

export const SHOW_INVITATION: RouteDescription = {
  tag: 'Console',
  summary: 'Show an invitation',
  about: 'Does not use up the invitation.',
  request: jsonContent(InvitationRequest, { token: 'q3Jz0hXw7cM5b1uYk9eTnVfR2sAoLdP6iGxZ8mKtWQE' }),
  response: jsonResponse(
    'The invitation.',
    InvitationResponse,
    {
      data: {
        accountName: 'Acme',
        role: 'developer',
        email: null,
        expiresAt: '2026-11-28T04:00:00.000Z',
      },
    },
    'session',
    'no-store',
  ),
  refusals: ['INVITATION_NOT_FOUND', 'RATE_LIMIT_EXCEEDED', 'CSRF_CHECK_FAILED'],
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
        email: null,
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
