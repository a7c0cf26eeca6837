/** Schemas and OpenAPI descriptions of members and invitations. */
import * as z from 'zod';
import { MEMBER_ROLES } from '../config/config.ts';
import { type RouteDescription, jsonContent, jsonResponse, listOf } from '../http/describe.ts';
import { Time } from './api-key-schema.ts';
import { ACCOUNT_PATH, ofAccount } from './operator/operator-accounts-schema.ts';

const ROLE = z
  .enum(MEMBER_ROLES)
  .describe(
    '`owner`: all rights. `billing`: credit, statement, budgets. `developer`: requests to models, INFERENCE keys, webhooks. `viewer`: reads usage and settings.',
  );

export type MemberItem = z.infer<typeof MemberItem>;
const MemberItem = z
  .object({
    id: z.string().describe('Id of the member.'),
    email: z.string().describe('Verified email address at the provider.'),
    name: z.string().describe('Name at the provider; can be empty.'),
    role: ROLE,
    source: z
      .enum(['rule', 'invitation'])
      .describe(
        'A membership by a rule ends at the first sign-in that no longer fits the rule; one by an invitation lasts.',
      ),
    keyId: z.string().describe('Id in usage and activity for requests of the member.'),
    createdAt: Time,
    lastSignInAt: Time,
  })
  .meta({ id: 'Member' });

export type InvitationItem = z.infer<typeof InvitationItem>;
const InvitationItem = z
  .object({
    id: z.string().describe('Id of the invitation.'),
    role: ROLE,
    email: z.string().nullable().describe('Only this address can accept; null: any person.'),
    createdAt: Time,
    expiresAt: Time,
  })
  .meta({ id: 'Invitation' });

export const UpdateMemberRequest = z.object({ role: ROLE }).meta({ id: 'UpdateMemberRequest' });

export const InviteRequest = z
  .object({
    role: ROLE,
    email: z
      .email()
      .max(254)
      .toLowerCase()
      .nullish()
      .describe('Only a person with this verified address can accept. Null (the default): any.'),
  })
  .meta({ id: 'InviteRequest' });

export type CreatedInvitation = z.infer<typeof CreatedInvitation>;
const CreatedInvitation = z.object({
  data: InvitationItem.extend({
    url: z.string().describe('Link for the person, valid once. The server cannot show it again.'),
    emailed: z
      .boolean()
      .describe('Whether the link is also sent to `email`; false without a mail server.'),
  }).describe('The invitation.'),
});

const MEMBER: MemberItem = {
  id: 'member_019aa3f1c0de',
  email: 'alice@example.com',
  name: 'Alice',
  role: 'developer',
  source: 'invitation',
  keyId: 'key_019aa3f1c0de',
  createdAt: '2026-11-21T04:00:00.000Z',
  lastSignInAt: '2026-11-21T04:00:00.000Z',
};
const INVITATION: InvitationItem = {
  id: 'invitation_019aa3f1c0de',
  role: 'developer',
  email: null,
  createdAt: '2026-11-21T04:00:00.000Z',
  expiresAt: '2026-11-28T04:00:00.000Z',
};

const DONE = z.object({ success: z.literal(true).describe('Always true.') });
const MEMBER_PATH = [
  { name: 'id', in: 'path', about: 'Id of the member.', example: MEMBER.id },
] as const;

export const LIST_MEMBERS: RouteDescription = {
  tag: 'Members',
  summary: 'List members',
  response: jsonResponse('Members.', listOf(MemberItem, 'Members, oldest first.'), {
    object: 'list',
    data: [MEMBER],
  }),
};

export const UPDATE_MEMBER: RouteDescription = {
  tag: 'Members',
  summary: 'Change the role of a member',
  about: 'Applies to open sessions too. Rules of the provider no longer change this role.',
  parameters: MEMBER_PATH,
  request: jsonContent(UpdateMemberRequest, { role: 'billing' }),
  response: jsonResponse('The member.', z.object({ data: MemberItem }), { data: MEMBER }),
  refusals: ['MEMBER_NOT_FOUND', 'LAST_OWNER'],
};

export const REMOVE_MEMBER: RouteDescription = {
  tag: 'Members',
  summary: 'Remove a member',
  about: 'Ends its sessions. API keys that it has created stay valid.',
  parameters: MEMBER_PATH,
  response: jsonResponse('The member was removed.', DONE, { success: true }),
  refusals: ['MEMBER_NOT_FOUND', 'LAST_OWNER'],
};

export const LIST_INVITATIONS: RouteDescription = {
  tag: 'Members',
  summary: 'List open invitations',
  response: jsonResponse('Invitations.', listOf(InvitationItem, 'Invitations, oldest first.'), {
    object: 'list',
    data: [INVITATION],
  }),
};

export const INVITE: RouteDescription = {
  tag: 'Members',
  summary: 'Invite a member',
  about:
    'Returns a link, which you send to the person. The person signs in at a provider of the section `signIn` of the configuration; no rule of the provider needs to fit.',
  request: jsonContent(InviteRequest, { role: 'developer' }),
  response: jsonResponse(
    'The invitation with its link.',
    CreatedInvitation,
    {
      data: {
        ...INVITATION,
        url: 'https://api.example.com/console/join#q3Jz0hXw7cM5b1uYk9eTnVfR2sAoLdP6iGxZ8mKtWQE',
        emailed: true,
      },
    },
    'no-store',
  ),
  refusals: ['MEMBER_LIMIT_REACHED'],
};

export const WITHDRAW: RouteDescription = {
  tag: 'Members',
  summary: 'Delete an invitation',
  parameters: [{ name: 'id', in: 'path', about: 'Id of the invitation.', example: INVITATION.id }],
  response: jsonResponse('The link is no longer valid.', DONE, { success: true }),
  refusals: ['INVITATION_NOT_FOUND'],
};

export const ACCOUNT_MEMBERS = ofAccount(
  LIST_MEMBERS,
  'List the members of an account',
  ACCOUNT_PATH,
);
export const ACCOUNT_INVITE = ofAccount(INVITE, 'Invite a member to an account', ACCOUNT_PATH);
