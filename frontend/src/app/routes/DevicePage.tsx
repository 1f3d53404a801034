import { useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { DeviceCodeForm } from "@/features/auth/device/DeviceCodeForm";
import { DeviceRequest } from "@/features/auth/device/DeviceRequest";

/** Where a signed-in person approves a program that waits for an API key. */
export function DevicePage() {
  const { user_code } = useSearch({ from: "/sign-in/device" });
  const [code, setCode] = useState(user_code ?? "");
  return (
    <SignedOutFrame title="Approve a program" note="A program without a browser requests an API key that acts as you.">
      {code === "" ? (
        <DeviceCodeForm onTyped={setCode} />
      ) : (
        <DeviceRequest
          key={code}
          code={code}
          onOther={() => {
            setCode("");
          }}
        />
      )}
    </SignedOutFrame>
  );
}
