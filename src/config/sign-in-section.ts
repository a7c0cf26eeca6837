/**
 * The `signIn` section: OpenID Connect providers whose users sign in to the console, and the rules that
 * give them an account, a plan and a role.
 */
import * as z from 'zod';
import { PlanName } from './plans-section.ts';
import { Text, flag, group, secret, whole } from './setting-kinds.ts';

/** Roles of a member of an account, the one with all rights first. */
export const MEMBER_ROLES = ['owner', 'billing', 'developer', 'viewer'] as const;
export type MemberRole = (typeof MEMBER_ROLES)[number];

const MAX_LIST = 100;
const MAX_SESSION_HOURS = 24 * 90;
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

export type SignInRule = z.infer<typeof SignInRule>;
const SignInRule = z
  .strictObject({
    groups: z
      .array(Text)
      .min(1)
      .max(MAX_LIST)
      .optional()
      .describe('The user must be in one of these groups. Default: any user.'),
    domains: z
      .array(
        z
          .string()
          .regex(
            /^(?:[a-z\d-]+\.)+[a-z\d-]+$/,
            'Must be a domain in lower case, such as example.com',
          ),
      )
      .min(1)
      .max(MAX_LIST)
      .optional()
      .describe('The email address must be of one of these domains. Default: any domain.'),
    operator: flag(false).describe("Makes the user a member of the operator's account."),
    account: Text.max(100)
      .optional()
      .describe(
        'Name or id of the account that the user joins. An account with this name is created at the first sign-in. Default: an account of its own for each user.',
      ),
    plan: PlanName.default('paid').describe('Plan of an account that the rule creates.'),
    role: z
      .enum(MEMBER_ROLES)
      .optional()
      .describe('Role of the user. Default: `owner` of its own account, otherwise `viewer`.'),
  })
  .refine(({ operator, account }) => !operator || account === undefined, {
    message: 'Must not be set together with "operator"',
    path: ['account'],
  });

export type SignInProviderSettings = z.infer<typeof Provider>;
const Provider = z.strictObject({
  id: z
    .string()
    .regex(/^[a-z\d][a-z\d-]{0,39}$/, 'Must be 1 to 40 lowercase letters, digits or hyphens')
    .describe(
      'Short name. The redirect URI to register at the provider is `<publicUrl>/console/sign-in/<id>`.',
    ),
  label: Text.max(60).describe('Name on the button of the sign-in page.'),
  issuer: z
    .string()
    .refine(isIssuer, 'Must be an https:// URL without query, or http:// on a loopback address')
    .describe(
      'Issuer identifier, exactly as the provider states it. Its discovery document is at `<issuer>/.well-known/openid-configuration`.',
    ),
  clientId: Text.describe('Client id that the provider has issued.'),
  clientSecret: secret()
    .optional()
    .describe('Client secret, for example `${ACME_CLIENT_SECRET}`. Default: a public client.'),
  clientAuthentication: z
    .enum(['basic', 'post'])
    .default('basic')
    .describe('Place of the client secret in requests: the `Authorization` header or the body.'),
  scopes: z
    .array(Text)
    .max(MAX_LIST)
    .default(['openid', 'email', 'profile'])
    .refine((scopes) => scopes.includes('openid'), 'Must contain openid')
    .describe('Scopes of the request. Many providers return groups only with a further scope.'),
  groupsClaim: Text.default('groups').describe(
    'Claim with the list of groups; dots select a nested member, such as `realm_access.roles`.',
  ),
  trustEmails: flag(false).describe(
    'Accept addresses without the claim `email_verified`. Set it only for a provider that verifies each address and omits the claim, such as the tenant of a company at Microsoft Entra ID.',
  ),
  signOutAtProvider: flag(true).describe(
    'At sign-out, also end the session at the provider, if its discovery document has an `end_session_endpoint`.',
  ),
  rules: z
    .array(SignInRule)
    .max(MAX_LIST)
    .default([])
    .describe(
      'The first rule that fits a user gives its account and role, at each sign-in. Without a fitting rule only invited members can sign in.',
    ),
});

export const SignInSection = group({
  providers: z
    .array(Provider)
    .max(20)
    .default([])
    .refine(
      (providers) => new Set(providers.map(({ id }) => id)).size === providers.length,
      'Each provider must have its own id',
    )
    .describe('Providers, in the order of the sign-in page.'),
  sessionHours: whole(24 * 7, MAX_SESSION_HOURS).describe(
    'Hours after which a member must sign in again. Until then a change of groups at the provider has no effect.',
  ),
  invitationDays: whole(7, 90).describe('Days for which the link of an invitation is valid.'),
});

function isIssuer(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || url.search !== '' || url.hash !== '' || url.username !== '') return false;
  return url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK.test(url.hostname));
}
