import type { Member } from "@/api/types";

/** A change of the team's people that waits for confirmation. */
export type MemberChange = { member: Member; to: Member["role"] } | { member: Member; to: "removed" | "left" };

interface Question {
  title: string;
  consequence: string;
  confirm: string;
}

const RIGHTS: Record<Member["role"], string> = {
  viewer: "view everything, but change nothing",
  editor: "upload data and start runs, but not manage people",
  owner: "manage people: invite them, change their roles and remove anyone, you included",
};

/** What a change would do. */
export function describeChange({ member, to }: MemberChange, isMe: boolean): Question {
  const lost = member.role === "owner" ? (isMe ? " Pending invitations that you created are revoked." : " Pending invitations that they created are revoked.") : "";
  if (to === "left") {
    return {
      title: "Leave the team?",
      consequence: `Your API keys stop working for this team at once. Your runs continue, and what you created stays.${lost} To come back, you need an invitation.`,
      confirm: "Leave",
    };
  }
  if (to === "removed") {
    return {
      title: `Remove ${member.name} from the team?`,
      consequence: `Their API keys stop working for this team at once. Their runs continue unless you cancel them, and what they created stays.${lost}`,
      confirm: "Remove",
    };
  }
  const who = isMe ? `You become ${article(to)}` : `Make ${member.name} ${article(to)}`;
  return { title: `${who}?`, consequence: `${isMe ? "You" : "They"} will be able to ${RIGHTS[to]}.${lost}`, confirm: "Change role" };
}

function article(role: Member["role"]): string {
  return role === "viewer" ? "a viewer" : `an ${role}`;
}
